/**
 * The WebSocket of one terminal: connects, connects again with back-off, resumes by offset, and says at each moment
 * how things stand. Nothing else in the app opens a socket.
 *
 * Input goes out only while connected: what a person types into a dead line is refused rather than typed later.
 */

import { backOff, type ClientMessage, type Mode, type Step, Stream } from "./protocol.ts";

export type Link =
  | { state: "connecting" }
  | { state: "connected" }
  /** Trying again at `at` (milliseconds since 1970). */
  | { state: "waiting"; at: number; attempt: number }
  /** The browser has no network. */
  | { state: "offline" }
  /** The screen is behind; the socket was let go until it has caught up. */
  | { state: "catching_up" }
  /** It makes no sense to try again: signed out, or no such terminal. */
  | { state: "ended"; why: "signed_out" | "gone" | "share_over" }
  /** What it runs on is paused; looking at it does not resume it. */
  | { state: "paused" };

/** What the socket tells its owner. */
export interface Listener {
  link(link: Link): void;
  step(step: Step): void;
}

/** The outside world, so that tests can bring their own. */
export interface World {
  open(address: string): WebSocket;
  /** Why connecting fails, asked over HTTP since a browser hides it. */
  why(): Promise<"signed_out" | "gone" | "share_over" | "paused" | "unknown">;
  after(milliseconds: number, act: () => void): () => void;
  now(): number;
  random(): number;
  online(): boolean;
  /** Calls `act` when the network comes (true) or goes (false), and when the page is looked at again (true). */
  watchNetwork(act: (online: boolean) => void): () => void;
}

/** Bytes of output the screen may owe before the socket is let go and a new picture is asked for. */
export const BEHIND = 2 << 20;
/** It connects again when the screen owes no more than this. */
export const CAUGHT_UP = 128 << 10;
const PING_EVERY = 15_000;
const PONG_WITHIN = 10_000;

/** The bytes of a gzip; none if it is not one, which no picture's length fits. */
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
  readonly #world: World;
  readonly #listener: Listener;
  readonly #stream = new Stream();
  readonly #unwatch: () => void;
  #socket: WebSocket | null = null;
  #attempt = 0;
  #owed = 0;
  #allowed = BEHIND;
  #mode: Mode;
  #link: Link = { state: "connecting" };
  #stopTimer: (() => void) | null = null;
  #stopPing: (() => void) | null = null;
  #closed = false;

  /** `address` is that of the terminal's WebSocket; `name` is what others see this client as. */
  constructor(address: string, name: string, mode: Mode, world: World, listener: Listener) {
    this.#address = address;
    this.#name = name;
    this.#mode = mode;
    this.#world = world;
    this.#listener = listener;
    this.#unwatch = world.watchNetwork((online) => this.#network(online));
    if (world.online()) this.#connect();
    else this.#tell({ state: "offline" });
  }

  get link(): Link {
    return this.#link;
  }

  /** Offset after the last byte received. */
  get offset(): number | null {
    return this.#stream.offset;
  }

  /** Types bytes; false if there is no line to type into. */
  input(bytes: Uint8Array): boolean {
    if (this.#link.state !== "connected" || this.#socket?.readyState !== 1) return false;
    this.#socket.send(bytes as Uint8Array<ArrayBuffer>);
    return true;
  }

  /** Says something; false if there is no line. */
  say(message: ClientMessage): boolean {
    // What a client asked for holds across a reconnect.
    if (message.type === "take_over") this.#mode = "driver";
    if (message.type === "hand_back") this.#mode = "viewer";
    if (this.#link.state !== "connected" || this.#socket?.readyState !== 1) return false;
    this.#socket.send(JSON.stringify(message));
    return true;
  }

  /** The screen has drawn that many of the bytes it was given. */
  drawn(bytes: number): void {
    this.#owed -= bytes;
    if (this.#link.state === "catching_up" && this.#owed <= CAUGHT_UP) this.#connect();
  }

  /** Tries at once instead of waiting. */
  retry(): void {
    if (this.#link.state === "waiting" || this.#link.state === "offline" || this.#link.state === "paused") {
      this.#attempt = 0;
      this.#connect();
    }
  }

  close(): void {
    this.#closed = true;
    this.#unwatch();
    this.#drop();
  }

  #tell(link: Link): void {
    this.#link = link;
    this.#listener.link(link);
  }

  #connect(): void {
    this.#drop();
    if (this.#closed) return;
    const query = new URLSearchParams({ mode: this.#mode, name: this.#name, resume: "false" });
    if ("DecompressionStream" in globalThis) query.set("compress", "gzip");
    if (this.#stream.offset !== null) query.set("from", String(this.#stream.offset));
    this.#stream.opened();
    this.#tell({ state: "connecting" });
    const socket = this.#world.open(`${this.#address}?${query}`);
    this.#socket = socket;
    socket.binaryType = "arraybuffer";
    let greeted = false;
    // While a picture is being unpacked, what came after it waits.
    const waiting: (string | Uint8Array)[] = [];
    let unpacking = false;
    const proceed = (): void => {
      while (!unpacking && socket === this.#socket) {
        const frame = waiting.shift();
        if (frame === undefined) return;
        if (typeof frame === "string" || !this.#stream.squeezed) {
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
          this.#tell({ state: "connected" });
          this.#ping();
        }
        if (!this.#apply(step)) return;
      }
    };
    socket.onclose = () => {
      if (socket !== this.#socket) return;
      this.#lost(greeted);
    };
  }

  /** Hands a step on; false if the socket was let go because of it. */
  #apply(step: Step): boolean {
    switch (step.do) {
      case "alive":
        this.#ping();
        return true;
      case "broken":
        this.#stream.forget();
        this.#again();
        return false;
      case "picture":
        // A large picture is no reason to ask for another.
        this.#allowed = BEHIND + step.bytes.length;
        this.#owed += step.bytes.length;
        this.#listener.step(step);
        return true;
      case "write":
        this.#owed += step.bytes.length;
        this.#listener.step(step);
        if (this.#owed <= this.#allowed) return true;
        // What was missed meanwhile is in the next picture.
        this.#drop();
        this.#stream.forget();
        this.#tell({ state: "catching_up" });
        return false;
      default:
        this.#listener.step(step);
        return true;
    }
  }

  #lost(greeted: boolean): void {
    this.#drop();
    if (!this.#world.online()) {
      this.#tell({ state: "offline" });
      return;
    }
    this.#again();
    if (greeted) return;
    // The handshake failed; only an ordinary request can say why.
    const attempt = this.#attempt;
    void this.#world.why().then((why) => {
      if (this.#closed || why === "unknown" || attempt !== this.#attempt || this.#link.state !== "waiting")
        return;
      this.#drop();
      this.#tell(why === "paused" ? { state: "paused" } : { state: "ended", why });
    });
  }

  #again(): void {
    this.#drop();
    if (this.#closed) return;
    const wait = backOff(this.#attempt, this.#world.random());
    this.#attempt += 1;
    this.#tell({ state: "waiting", at: this.#world.now() + wait, attempt: this.#attempt });
    this.#stopTimer = this.#world.after(wait, () => this.#connect());
  }

  #ping(): void {
    this.#stopPing?.();
    this.#stopPing = this.#world.after(PING_EVERY, () => {
      this.say({ type: "ping" });
      this.#stopPing = this.#world.after(PONG_WITHIN, () => this.#again());
    });
  }

  #network(online: boolean): void {
    if (this.#closed || this.#link.state === "ended" || this.#link.state === "catching_up") return;
    if (online) {
      // A paused one stays so until somebody resumes it.
      if (this.#link.state !== "paused") this.retry();
      return;
    }
    this.#drop();
    this.#tell({ state: "offline" });
  }

  #drop(): void {
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
