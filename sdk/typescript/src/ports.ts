/** The ports that programs of a thread listen on, and links to them. */

import { snakeKeys } from "./case.js";
import type { CallOptions, KeyedOptions, Transport } from "./transport.js";
import type { PortLink } from "./types.js";

/** Options of {@link Ports.link}. */
export interface PortLinkOptions extends KeyedOptions {
  /** Lifetime of the link in milliseconds; a day by default, 30 days at most. */
  expiresInMs?: number | undefined;
}

/**
 * The ports of a thread.
 *
 * @example
 * ```ts
 * const thread = client.threads.open("build");
 * console.log(await thread.ports());
 * const { url } = await thread.ports.link(8000, { expiresInMs: 3_600_000 });
 * ```
 */
export interface Ports {
  /**
   * Returns the TCP ports that programs listen on, in ascending order. Without a sandbox (provider `local`) these are
   * the ports of the machine.
   */
  (options?: CallOptions): Promise<number[]>;
  /**
   * Creates a link that opens a port in a browser, without a token, until it expires. Everyone who has the link can use
   * the port. The program need not listen yet.
   */
  link(port: number, options?: PortLinkOptions): Promise<PortLink>;
}

/** @internal */
export function portsOf(transport: Transport, thread: string): Ports {
  const list = async (options: CallOptions = {}): Promise<number[]> => {
    const found = await transport.call("get", "/api/threads/{tid}/ports", {
      ...options,
      path: { tid: thread },
    });
    return found.items.map((item) => item.port);
  };
  const link = (port: number, options: PortLinkOptions = {}): Promise<PortLink> => {
    const { signal, idempotencyKey, ...body } = options;
    const request = { path: { tid: thread, port }, body: snakeKeys(body), signal, idempotencyKey };
    return transport.call("post", "/api/threads/{tid}/ports/{port}/links", request);
  };
  return Object.assign(list, { link });
}
