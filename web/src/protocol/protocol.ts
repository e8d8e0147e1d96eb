/**
 * What is said over a terminal's WebSocket, and what it means. Pure: no socket, no clock, no screen.
 *
 * The server sends output as binary frames and everything else as JSON text. A snapshot is announced by text and
 * is the one binary frame after it; it is a picture of what the output so far has made, so it does not count in the
 * offset. `Stream` turns frames into steps for the screen and knows at each moment the offset of the next byte.
 */

export type Mode = "driver" | "viewer";

export type ServerMessage =
  | {
      type: "hello";
      offset: number;
      mode: Mode;
      driver: string | null;
      cols: number;
      rows: number;
      client: string | number;
      live: boolean;
      title: string;
    }
  | {
      type: "snapshot";
      offset: number;
      cols: number;
      rows: number;
      bytes: number;
      title: string | null;
      gzip: boolean;
    }
  | { type: "resize"; cols: number; rows: number }
  | { type: "title"; title: string }
  | { type: "notice"; text: string }
  | { type: "gap"; from: number; to: number }
  | { type: "driver"; driver: string | null; mode: Mode | null }
  | { type: "mode"; mode: Mode }
  | { type: "exit"; code: number | null; signal: number | string | null }
  | { type: "error"; code: string; detail: string }
  | { type: "pong" };

export type ClientMessage =
  | { type: "resize"; cols: number; rows: number }
  | { type: "take_over" }
  | { type: "hand_back" }
  | { type: "signal"; signal: string }
  | { type: "ping" };

/** What the screen and the view are to do about a frame, in order. */
export type Step =
  | { do: "picture"; cols: number; rows: number; bytes: Uint8Array }
  | { do: "write"; bytes: Uint8Array }
  | { do: "resize"; cols: number; rows: number }
  | { do: "gap"; from: number; to: number }
  | { do: "title"; title: string }
  | { do: "notice"; text: string }
  | { do: "hello"; mode: Mode; driver: string | null; live: boolean; resumed: boolean; title: string }
  | { do: "driver"; driver: string | null }
  | { do: "mode"; mode: Mode }
  | { do: "exit"; code: number | null; signal: number | string | null }
  | { do: "refused"; code: string; detail: string }
  | { do: "alive" }
  /** The frames do not fit together: begin again with a picture. */
  | { do: "broken"; why: string };

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;
const isSize = (value: unknown): value is number => isCount(value) && value > 0 && value <= 0xffff;
const text = (value: unknown): string => (typeof value === "string" ? value : "");
const nameOrNull = (value: unknown): string | null => (typeof value === "string" ? value : null);
const mode = (value: unknown): Mode => (value === "driver" ? "driver" : "viewer");

/** Reads a text frame. An unknown type is `null` (a later server may say more); bad JSON or a bad field is `undefined`. */
export function parse(frame: string): ServerMessage | null | undefined {
  let said: unknown;
  try {
    said = JSON.parse(frame);
  } catch {
    return undefined;
  }
  if (typeof said !== "object" || said === null) return undefined;
  const it = said as Record<string, unknown>;
  const sized = isSize(it.cols) && isSize(it.rows);
  const [cols, rows] = [it.cols as number, it.rows as number];
  switch (it.type) {
    case "hello":
      if (!isCount(it.offset) || !sized) return undefined;
      return {
        type: "hello",
        offset: it.offset,
        mode: mode(it.mode),
        driver: nameOrNull(it.driver),
        cols,
        rows,
        client: typeof it.client === "number" ? it.client : text(it.client),
        live: it.live !== false,
        title: text(it.title),
      };
    case "snapshot":
      if (!isCount(it.offset) || !isCount(it.bytes) || !sized) return undefined;
      return {
        type: "snapshot",
        offset: it.offset,
        bytes: it.bytes,
        cols,
        rows,
        title: nameOrNull(it.title),
        gzip: it.encoding === "gzip",
      };
    case "resize":
      return sized ? { type: "resize", cols, rows } : undefined;
    case "title":
      return { type: "title", title: text(it.title) };
    case "notice":
      return { type: "notice", text: text(it.text) };
    case "gap":
      if (!isCount(it.from) || !isCount(it.to)) return undefined;
      return { type: "gap", from: it.from, to: it.to };
    case "driver":
      // What this client is then may come with it.
      return {
        type: "driver",
        driver: nameOrNull(it.driver),
        mode: it.mode === undefined ? null : mode(it.mode),
      };
    case "mode":
      return { type: "mode", mode: mode(it.mode) };
    case "exit": {
      const code = typeof it.code === "number" ? it.code : null;
      const signal = typeof it.signal === "number" || typeof it.signal === "string" ? it.signal : null;
      return { type: "exit", code, signal };
    }
    case "error":
      return { type: "error", code: text(it.code), detail: text(it.detail) };
    case "pong":
      return { type: "pong" };
    default:
      return null;
  }
}

/** One terminal's output as this client has it. It lives longer than a socket: the offset is what a new socket resumes from. */
export class Stream {
  /** Offset after the last byte that was handed on; `null` before the first picture. */
  offset: number | null = null;
  #greeted = false;
  #picture: (ServerMessage & { type: "snapshot" }) | null = null;
  #size: { cols: number; rows: number } | null = null;

  /** A socket was opened: a hello comes first. */
  opened(): void {
    this.#greeted = false;
    this.#picture = null;
  }

  /** Begin with a picture next time. */
  forget(): void {
    this.offset = null;
    this.#picture = null;
  }

  /** Whether the next binary frame is a picture as gzip: `bytes` takes it unpacked. */
  get squeezed(): boolean {
    return this.#picture?.gzip === true;
  }

  /** What a text frame asks for. */
  text(frame: string): Step[] {
    const said = parse(frame);
    if (said === undefined) return [{ do: "broken", why: `not understood: ${frame.slice(0, 80)}` }];
    if (said === null) return [];
    if (said.type !== "hello" && said.type !== "error" && !this.#greeted) {
      return [{ do: "broken", why: `${said.type} before hello` }];
    }
    if (this.#picture && said.type !== "pong") {
      return [{ do: "broken", why: `${said.type} where a picture was announced` }];
    }
    switch (said.type) {
      case "hello": {
        this.#greeted = true;
        const resumed = this.offset !== null && said.offset === this.offset;
        const steps: Step[] = [
          { do: "hello", mode: said.mode, driver: said.driver, live: said.live, resumed, title: said.title },
        ];
        // Where the offsets differ a picture must follow; `bytes` refuses output until it did.
        if (resumed) steps.push(...this.#resized(said.cols, said.rows));
        else this.offset = null;
        return steps;
      }
      case "snapshot":
        this.#picture = said;
        return said.bytes === 0 ? this.bytes(new Uint8Array(0)) : [];
      case "resize":
        return this.#resized(said.cols, said.rows);
      case "gap":
        if (this.offset === null) return [];
        this.offset = said.to;
        return [{ do: "gap", from: said.from, to: said.to }];
      case "title":
        return [{ do: "title", title: said.title }];
      case "notice":
        return [{ do: "notice", text: said.text }];
      case "driver":
        return [
          { do: "driver", driver: said.driver },
          ...(said.mode === null ? [] : [{ do: "mode" as const, mode: said.mode }]),
        ];
      case "mode":
        return [{ do: "mode", mode: said.mode }];
      case "exit":
        return [{ do: "exit", code: said.code, signal: said.signal }];
      case "error":
        return [{ do: "refused", code: said.code, detail: said.detail }];
      case "pong":
        return [{ do: "alive" }];
    }
  }

  /** What a binary frame asks for. */
  bytes(bytes: Uint8Array): Step[] {
    if (this.#picture) {
      const { offset, cols, rows, bytes: length, title } = this.#picture;
      this.#picture = null;
      if (bytes.length !== length) {
        return [{ do: "broken", why: `a picture of ${length} bytes came with ${bytes.length}` }];
      }
      this.offset = offset;
      this.#size = { cols, rows };
      return [
        { do: "picture", cols, rows, bytes },
        ...(title === null ? [] : [{ do: "title" as const, title }]),
      ];
    }
    if (this.offset === null) return [{ do: "broken", why: "output before a picture" }];
    this.offset += bytes.length;
    return [{ do: "write", bytes }];
  }

  #resized(cols: number, rows: number): Step[] {
    if (this.#size?.cols === cols && this.#size.rows === rows) return [];
    this.#size = { cols, rows };
    return [{ do: "resize", cols, rows }];
  }
}

/** Milliseconds before attempt number `attempt` (from 0) to connect again: doubling to ten seconds, spread by `random` in [0,1). */
export function backOff(attempt: number, random: number): number {
  const full = Math.min(10_000, 250 * 2 ** Math.min(attempt, 10));
  return Math.round(full * (0.5 + random / 2));
}
