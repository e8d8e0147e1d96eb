/**
 * The WebSocket of one terminal: connects, reconnects with back-off, resumes by offset, and reports its
 * state. Nothing else in the app opens a socket.
 *
 * Input is sent only while connected: keys pressed meanwhile are dropped, not sent later.
 */

import { backOff, type ClientMessage, type Mode, type Step, Stream } from "./protocol.ts";

export type Link =
  | { state: "connecting" }
  | { state: "connected" }
  /** Reconnecting at `at` (milliseconds since 1970). */
  | { state: "waiting"; at: number; attempt: number }
  /** The browser has no network. */
  | { state: "offline" }
  /** The screen is behind; the socket is closed until it has caught up. */
  | { state: "catching_up" }
  /** Reconnecting is pointless: signed out, or the terminal or share is gone. */
  | { state: "ended"; why: "signed_out" | "gone" | "share_over" }
  /** The instance is paused; connecting does not resume it. */
  | { state: "paused" };

/** Receives what the socket reports. */
export interface Listener {
  link(link: Link): void;
  step(step: Step): void;
}

/** The browser, replaced in tests. */
export interface Environment {
  open(address: string): WebSocket;
  /** Finds out over HTTP why connecting fails, because a browser does not tell. */
  failureReason(): Promise<"signed_out" | "gone" | "share_over" | "paused" | "unknown">;
  setTimer(milliseconds: number, callback: () => void): () => void;
  now(): number;
  random(): number;
  online(): boolean;
  /**
   * Calls `listener` when the network comes (true) or goes (false), and when the page becomes visible (true).
   */
  watchNetwork(listener: (online: boolean) => void): () => void;
}

/** Received bytes that the screen may be behind before the socket is closed and a new picture requested. */
export const MAX_PENDING_BYTES = 2 << 20;
/** The socket reconnects when the screen is no further behind than this. */
export const CAUGHT_UP_BYTES = 128 << 10;
const PING_INTERVAL_MS = 15_000;
const PONG_TIMEOUT_MS = 10_000;

/** Unpacks gzip. Returns no bytes if it is broken, which then differs from the announced length. */
async function unpack(bytes: Uint8Array): Promise<Uint8Array> {
  try {
    const stream = new Blob([bytes as Uint8Array<ArrayBuffer>])
      .stream()
      .pipeThrough(new DecompressionStream("gzip"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  } catch {
    return new Uint8Array(0);
  }
}

export class TerminalSocket {
  readonly #address: string;
  readonly #name: string;
  readonly #environment: Environment;
  readonly #listener: Listener;
  readonly #stream = new Stream();
  readonly #unwatch: () => void;
  #socket: WebSocket | null = null;
  #attempt = 0;
  #pending = 0;
  #maxPending = MAX_PENDING_BYTES;
  #mode: Mode;
  #link: Link = { state: "connecting" };
  #stopTimer: (() => void) | null = null;
  #stopPing: (() => void) | null = null;
  #closed = false;

  /** `address` is that of the terminal's WebSocket; `name` is the name that others see. */
  constructor(address: string, name: string, mode: Mode, environment: Environment, listener: Listener) {
    this.#address = address;
    this.#name = name;
    this.#mode = mode;
    this.#environment = environment;
    this.#listener = listener;
    this.#unwatch = environment.watchNetwork((online) => this.#onNetwork(online));
    if (environment.online()) this.#connect();
    else this.#setLink({ state: "offline" });
  }

  get link(): Link {
    return this.#link;
  }

  /** Offset after the last byte received. */
  get offset(): number | null {
    return this.#stream.offset;
  }

  /** Sends typed bytes. Returns false if not connected. */
  input(bytes: Uint8Array): boolean {
    if (this.#link.state !== "connected" || this.#socket?.readyState !== 1) return false;
    this.#socket.send(bytes as Uint8Array<ArrayBuffer>);
    return true;
  }

  /** Sends a message. Returns false if not connected. */
  send(message: ClientMessage): boolean {
    // The requested mode survives a reconnect.
    if (message.type === "take_over") this.#mode = "driver";
    if (message.type === "hand_back") this.#mode = "viewer";
    if (this.#link.state !== "connected" || this.#socket?.readyState !== 1) return false;
    this.#socket.send(JSON.stringify(message));
    return true;
  }

  /** Must be called when the screen has drawn `bytes` more. */
  drawn(bytes: number): void {
    this.#pending -= bytes;
    if (this.#link.state === "catching_up" && this.#pending <= CAUGHT_UP_BYTES) this.#connect();
  }

  /** Reconnects now instead of waiting. */
  retry(): void {
    if (this.#link.state === "waiting" || this.#link.state === "offline" || this.#link.state === "paused") {
      this.#attempt = 0;
      this.#connect();
    }
  }

  close(): void {
    this.#closed = true;
    this.#unwatch();
    this.#closeSocket();
  }

  #setLink(link: Link): void {
    this.#link = link;
    this.#listener.link(link);
  }

  #connect(): void {
    this.#closeSocket();
    if (this.#closed) return;
    const query = new URLSearchParams({ mode: this.#mode, name: this.#name, resume: "false" });
    if ("DecompressionStream" in globalThis) query.set("compress", "gzip");
    if (this.#stream.offset !== null) query.set("from", String(this.#stream.offset));
    this.#stream.opened();
    this.#setLink({ state: "connecting" });
    const socket = this.#environment.open(`${this.#address}?${query}`);
    this.#socket = socket;
    socket.binaryType = "arraybuffer";
    let greeted = false;
    // Frames that arrive while a picture is being unpacked wait.
    const waiting: (string | Uint8Array)[] = [];
    let unpacking = false;
    const proceed = (): void => {
      while (!unpacking && socket === this.#socket) {
        const frame = waiting.shift();
        if (frame === undefined) return;
        if (typeof frame === "string" || !this.#stream.isCompressed) {
          take(frame);
          continue;
        }
        unpacking = true;
        void unpack(frame).then((picture) => {
          unpacking = false;
          if (socket === this.#socket) take(picture);
          proceed();
        });
      }
    };
    socket.onmessage = ({ data }: MessageEvent<string | ArrayBuffer>) => {
      waiting.push(typeof data === "string" ? data : new Uint8Array(data));
      proceed();
    };
    const take = (frame: string | Uint8Array): void => {
      const steps = typeof frame === "string" ? this.#stream.text(frame) : this.#stream.bytes(frame);
      for (const step of steps) {
        if (step.do === "hello") {
          greeted = true;
          this.#attempt = 0;
          this.#setLink({ state: "connected" });
          this.#ping();
        }
        if (!this.#apply(step)) return;
      }
    };
    socket.onclose = () => {
      if (socket !== this.#socket) return;
      this.#onClose(greeted);
    };
  }

  /** Passes a step on. Returns false if it closed the socket. */
  #apply(step: Step): boolean {
    switch (step.do) {
      case "alive":
        this.#ping();
        return true;
      case "broken":
        this.#stream.forget();
        this.#reconnectLater();
        return false;
      case "picture":
        // A large picture must not lead to the next one.
        this.#maxPending = MAX_PENDING_BYTES + step.bytes.length;
        this.#pending += step.bytes.length;
        this.#listener.step(step);
        return true;
      case "write":
        this.#pending += step.bytes.length;
        this.#listener.step(step);
        if (this.#pending <= this.#maxPending) return true;
        // The next picture has what is missed meanwhile.
        this.#closeSocket();
        this.#stream.forget();
        this.#setLink({ state: "catching_up" });
        return false;
      default:
        this.#listener.step(step);
        return true;
    }
  }

  #onClose(greeted: boolean): void {
    this.#closeSocket();
    if (!this.#environment.online()) {
      this.#setLink({ state: "offline" });
      return;
    }
    this.#reconnectLater();
    if (greeted) return;
    // The handshake failed; only an ordinary request can find out why.
    const attempt = this.#attempt;
    void this.#environment.failureReason().then((why) => {
      if (this.#closed || why === "unknown" || attempt !== this.#attempt || this.#link.state !== "waiting")
        return;
      this.#closeSocket();
      this.#setLink(why === "paused" ? { state: "paused" } : { state: "ended", why });
    });
  }

  #reconnectLater(): void {
    this.#closeSocket();
    if (this.#closed) return;
    const wait = backOff(this.#attempt, this.#environment.random());
    this.#attempt += 1;
    this.#setLink({ state: "waiting", at: this.#environment.now() + wait, attempt: this.#attempt });
    this.#stopTimer = this.#environment.setTimer(wait, () => this.#connect());
  }

  #ping(): void {
    this.#stopPing?.();
    this.#stopPing = this.#environment.setTimer(PING_INTERVAL_MS, () => {
      this.send({ type: "ping" });
      this.#stopPing = this.#environment.setTimer(PONG_TIMEOUT_MS, () => this.#reconnectLater());
    });
  }

  #onNetwork(online: boolean): void {
    if (this.#closed || this.#link.state === "ended" || this.#link.state === "catching_up") return;
    if (online) {
      // A paused instance stays paused until it is resumed explicitly.
      if (this.#link.state !== "paused") this.retry();
      return;
    }
    this.#closeSocket();
    this.#setLink({ state: "offline" });
  }

  #closeSocket(): void {
    this.#stopTimer?.();
    this.#stopPing?.();
    this.#stopTimer = this.#stopPing = null;
    const socket = this.#socket;
    this.#socket = null;
    if (!socket) return;
    socket.onmessage = socket.onclose = null;
    socket.close();
  }
}
