/** A `fetch` for a server whose certificate is known, because the one of Node accepts no certificate per client. */

import { X509Certificate } from "node:crypto";
import { Agent, type RequestOptions, request } from "node:https";
import { type Duplex, Readable } from "node:stream";
import { type ConnectionOptions, connect } from "node:tls";

/** Opens connections to exactly one certificate, whatever its host name. */
class PinnedAgent extends Agent {
  readonly #fingerprint: string;

  constructor(pem: string) {
    super({ keepAlive: true });
    this.#fingerprint = new X509Certificate(pem).fingerprint256;
  }

  /** Returns nothing: the request, with its token, waits until the callback has a socket that was checked. */
  override createConnection(
    options: RequestOptions,
    callback?: (error: Error | null, stream: Duplex) => void,
  ): undefined {
    const failed = (error: Error): void => callback?.(error, socket);
    const socket = connect({ ...(options as ConnectionOptions), rejectUnauthorized: false }, () => {
      socket.off("error", failed);
      if (socket.getPeerCertificate().fingerprint256 === this.#fingerprint) return callback?.(null, socket);
      socket.destroy();
      failed(new Error("the certificate of the server differs from the one in its home directory"));
    });
    socket.once("error", failed);
  }
}

/** Creates a `fetch` that accepts exactly this certificate. */
export function pinnedFetch(pem: string): typeof fetch {
  const agent = new PinnedAgent(pem);
  return async (input, init = {}) => {
    const { method = "GET", headers, body, signal } = init;
    const content = body instanceof Blob ? await body.arrayBuffer() : body;
    return new Promise<Response>((resolve, reject) => {
      const options = {
        method,
        headers: Object.fromEntries(new Headers(headers)),
        agent,
        ...(signal && { signal }),
      };
      const sent = request(new URL(String(input)), options, (message) => {
        const fields = Object.entries(message.headersDistinct).flatMap(([name, values]) =>
          (values ?? []).map((value): [string, string] => [name, value]),
        );
        const status = message.statusCode ?? 0;
        if (status === 204) message.resume();
        const stream = status === 204 ? null : (Readable.toWeb(message) as ReadableStream<Uint8Array>);
        resolve(new Response(stream, { status, headers: fields }));
      });
      sent.on("error", reject);
      if (content instanceof ReadableStream) Readable.fromWeb(content as never).pipe(sent);
      else sent.end(content instanceof ArrayBuffer ? new Uint8Array(content) : content);
    });
  };
}
