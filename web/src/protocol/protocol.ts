/**
 * The messages of a terminal's WebSocket and their meaning. Pure: no socket, no clock, no screen.
 *
 * The server sends output as binary frames and everything else as JSON text. A snapshot is announced by text
 * and is the one binary frame after it; it is a picture of the screen that the output so far has produced, so
 * it does not count in the offset. `Stream` turns frames into steps for the screen and knows the offset of
 * the next byte.
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

/** What the screen and the view have to do about a frame, in order. */
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
  /** The frames contradict each other: reconnect and start with a picture. */
  | { do: "broken"; why: string };

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;
const isSize = (value: unknown): value is number => isCount(value) && value > 0 && value <= 0xffff;
const text = (value: unknown): string => (typeof value === "string" ? value : "");
const nameOrNull = (value: unknown): string | null => (typeof value === "string" ? value : null);
const mode = (value: unknown): Mode => (value === "driver" ? "driver" : "viewer");

/**
 * Parses a text frame. Returns null for an unknown type, which a later server may send, and undefined for bad
 * JSON or a bad field.
 */
export function parse(frame: string): ServerMessage | null | undefined {
  let parsed: unknown;
  try {
    parsed = JSON.parse(frame);
  } catch {
    return undefined;
  }
  if (typeof parsed !== "object" || parsed === null) return undefined;
  const fields = parsed as Record<string, unknown>;
  const sized = isSize(fields.cols) && isSize(fields.rows);
  const [cols, rows] = [fields.cols as number, fields.rows as number];
  switch (fields.type) {
    case "hello":
      if (!isCount(fields.offset) || !sized) return undefined;
      return {
        type: "hello",
        offset: fields.offset,
        mode: mode(fields.mode),
        driver: nameOrNull(fields.driver),
        cols,
        rows,
        client: typeof fields.client === "number" ? fields.client : text(fields.client),
        live: fields.live !== false,
        title: text(fields.title),
      };
    case "snapshot":
      if (!isCount(fields.offset) || !isCount(fields.bytes) || !sized) return undefined;
      return {
        type: "snapshot",
        offset: fields.offset,
        bytes: fields.bytes,
        cols,
        rows,
        title: nameOrNull(fields.title),
        gzip: fields.encoding === "gzip",
      };
    case "resize":
      return sized ? { type: "resize", cols, rows } : undefined;
    case "title":
      return { type: "title", title: text(fields.title) };
    case "notice":
      return { type: "notice", text: text(fields.text) };
    case "gap":
      if (!isCount(fields.from) || !isCount(fields.to)) return undefined;
      return { type: "gap", from: fields.from, to: fields.to };
    case "driver":
      // Some servers send the mode of this client along.
      return {
        type: "driver",
        driver: nameOrNull(fields.driver),
        mode: fields.mode === undefined ? null : mode(fields.mode),
      };
    case "mode":
      return { type: "mode", mode: mode(fields.mode) };
    case "exit": {
      const code = typeof fields.code === "number" ? fields.code : null;
      const signal =
        typeof fields.signal === "number" || typeof fields.signal === "string" ? fields.signal : null;
      return { type: "exit", code, signal };
    }
    case "error":
      return { type: "error", code: text(fields.code), detail: text(fields.detail) };
    case "pong":
      return { type: "pong" };
    default:
      return null;
  }
}

/** The output of one terminal as received. It outlives a socket: a new one resumes from its offset. */
export class Stream {
  /** Offset after the last byte received; null before the first picture. */
  offset: number | null = null;
  #greeted = false;
  #picture: (ServerMessage & { type: "snapshot" }) | null = null;
  #size: { cols: number; rows: number } | null = null;

  /** A socket was opened: its first message is a hello. */
  opened(): void {
    this.#greeted = false;
    this.#picture = null;
  }

  /** Start with a picture next time. */
  forget(): void {
    this.offset = null;
    this.#picture = null;
  }

  /** Whether the next binary frame is a picture packed by gzip. `bytes` expects it unpacked. */
  get isCompressed(): boolean {
    return this.#picture?.gzip === true;
  }

  /** Interprets a text frame. */
  text(frame: string): Step[] {
    const message = parse(frame);
    if (message === undefined) return [{ do: "broken", why: `cannot parse: ${frame.slice(0, 80)}` }];
    if (message === null) return [];
    if (message.type !== "hello" && message.type !== "error" && !this.#greeted) {
      return [{ do: "broken", why: `${message.type} before hello` }];
    }
    if (this.#picture && message.type !== "pong") {
      return [{ do: "broken", why: `${message.type} where a picture was announced` }];
    }
    switch (message.type) {
      case "hello": {
        this.#greeted = true;
        const resumed = this.offset !== null && message.offset === this.offset;
        const steps: Step[] = [
          {
            do: "hello",
            mode: message.mode,
            driver: message.driver,
            live: message.live,
            resumed,
            title: message.title,
          },
        ];
        // Where the offsets differ a picture must follow; until then `bytes` refuses output.
        if (resumed) steps.push(...this.#resized(message.cols, message.rows));
        else this.offset = null;
        return steps;
      }
      case "snapshot":
        this.#picture = message;
        return message.bytes === 0 ? this.bytes(new Uint8Array(0)) : [];
      case "resize":
        return this.#resized(message.cols, message.rows);
      case "gap":
        if (this.offset === null) return [];
        this.offset = message.to;
        return [{ do: "gap", from: message.from, to: message.to }];
      case "title":
        return [{ do: "title", title: message.title }];
      case "notice":
        return [{ do: "notice", text: message.text }];
      case "driver":
        return [
          { do: "driver", driver: message.driver },
          ...(message.mode === null ? [] : [{ do: "mode" as const, mode: message.mode }]),
        ];
      case "mode":
        return [{ do: "mode", mode: message.mode }];
      case "exit":
        return [{ do: "exit", code: message.code, signal: message.signal }];
      case "error":
        return [{ do: "refused", code: message.code, detail: message.detail }];
      case "pong":
        return [{ do: "alive" }];
    }
  }

  /** Interprets a binary frame. */
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

/**
 * Milliseconds before reconnection attempt `attempt` (from 0): doubling up to ten seconds, spread by `random`
 * in [0,1).
 */
export function backOff(attempt: number, random: number): number {
  const full = Math.min(10_000, 250 * 2 ** Math.min(attempt, 10));
  return Math.round(full * (0.5 + random / 2));
}
