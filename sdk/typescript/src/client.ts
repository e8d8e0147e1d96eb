/** The client. */

import { Commands } from "./command.js";
import { type EventsOptions, type SteadEvent, serverEvents } from "./events.js";
import { Handoffs } from "./handoff.js";
import { Listing } from "./listing.js";
import { Sandboxes } from "./sandbox.js";
import { Terminal } from "./terminal.js";
import { Threads } from "./thread.js";
import { type CallOptions, type ClientOptions, Transport } from "./transport.js";
import type { PageOptions, ProviderInfo, TerminalInfo } from "./types.js";

/**
 * A client of one server.
 *
 * @example
 * ```ts
 * const client = new Stead({ url: "http://127.0.0.1:7832", token });
 * const result = await client.threads.open("build").exec("make test");
 * ```
 */
export class Stead {
  readonly sandboxes: Sandboxes;
  readonly threads: Threads;
  readonly commands: Commands;
  readonly handoffs: Handoffs;
  readonly #transport: Transport;
  /**
   * Calls any operation of `/openapi.json`, with parameters and body named as there.
   *
   * @example
   * ```ts
   * const page = await client.call("get", "/api/projects", { query: { prefix: "demo" } });
   * ```
   */
  readonly call: Transport["call"];

  constructor(options: ClientOptions) {
    const transport = new Transport(options);
    this.#transport = transport;
    this.call = transport.call.bind(transport);
    this.sandboxes = new Sandboxes(transport);
    this.threads = new Threads(transport);
    this.commands = new Commands(transport);
    this.handoffs = new Handoffs(transport);
  }

  /** URL of the server. */
  get url(): string {
    return this.#transport.url;
  }

  /** Returns a handle to a terminal. Sends no request. */
  terminal(id: string): Terminal {
    return new Terminal(this.#transport, id);
  }

  /** Lists the terminals of all threads. */
  terminals(options: PageOptions & { status?: string } = {}): Listing<TerminalInfo> {
    const { status, limit, signal } = options;
    return new Listing(options.cursor, (cursor) =>
      this.#transport.call("get", "/api/terminals", { query: { status, limit, cursor }, signal }),
    );
  }

  /** Lists the providers, and what each can do. */
  async providers(options: CallOptions = {}): Promise<ProviderInfo[]> {
    return (await this.#transport.call("get", "/api/providers", options)).items;
  }

  /**
   * Yields the events of the server as they happen, without a gap across reconnects as long as the server keeps them.
   *
   * @example
   * ```ts
   * for await (const event of client.events()) {
   *   if (event.type === "command_ended") console.log(event.commandId);
   * }
   * ```
   */
  events(options: EventsOptions = {}): AsyncGenerator<SteadEvent, void, undefined> {
    return serverEvents(this.#transport, options);
  }
}
