/** A TCP proxy that cuts its connections after a random number of bytes. */

import { connect, createServer, type Server, type Socket } from "node:net";

/** Reproducible random numbers (mulberry32). */
export function randomNumbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export class CuttingProxy {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  /** Number of connections that were cut. */
  cuts = 0;

  private constructor(target: () => string, nextCut: () => number) {
    this.#server = createServer((client) => {
      const { hostname, port } = new URL(target());
      const upstream = connect(Number(port), hostname);
      // The bytes of both directions count, so that requests are cut, too.
      let left = nextCut();
      const forward = (from: Socket, to: Socket): void => {
        this.#sockets.add(from);
        from.on("data", (chunk: Buffer) => {
          const piece = chunk.subarray(0, left);
          left -= piece.length;
          to.write(piece);
          if (left > 0) return;
          this.cuts += 1;
          // The bytes before the cut must arrive, or nothing would ever get through.
          to.end(() => to.destroy());
          from.destroy();
        });
        from.on("error", () => {});
        from.on("close", () => {
          this.#sockets.delete(from);
          to.end();
        });
      };
      forward(client, upstream);
      forward(upstream, client);
    });
  }

  static async start(target: () => string, nextCut: () => number): Promise<CuttingProxy> {
    const proxy = new CuttingProxy(target, nextCut);
    await new Promise<void>((resolve) => proxy.#server.listen(0, "127.0.0.1", resolve));
    return proxy;
  }

  /** The port of the proxy. */
  get port(): number {
    const address = this.#server.address();
    return typeof address === "object" && address ? address.port : 0;
  }

  /** Closes the open connections, which would keep the limits that they began with. */
  disconnect(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  close(): Promise<void> {
    this.disconnect();
    return new Promise((resolve) => this.#server.close(() => resolve()));
  }
}
