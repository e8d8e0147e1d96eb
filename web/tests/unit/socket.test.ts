import { gzipSync } from "node:zlib";
import { beforeEach, describe, expect, test, vi } from "vitest";
import type { Step } from "../../src/protocol/protocol.ts";
import { type Environment, type Link, MAX_PENDING_BYTES, TerminalSocket } from "../../src/protocol/socket.ts";

/** A socket whose server is simulated by the test. */
class Wire {
  readyState = 1;
  binaryType = "";
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onclose: (() => void) | null = null;
  readonly sent: unknown[] = [];
  readonly address: string;
  constructor(address: string) {
    this.address = address;
  }
  send(data: unknown): void {
    this.sent.push(
      typeof data === "string" ? JSON.parse(data) : new TextDecoder().decode(data as Uint8Array),
    );
  }
  close(): void {
    this.readyState = 3;
  }
  says(message: object): void {
    this.onmessage?.({ data: JSON.stringify(message) });
  }
  output(text: string): void {
    this.onmessage?.({ data: new TextEncoder().encode(text).buffer });
  }
  breaks(): void {
    this.readyState = 3;
    this.onclose?.();
  }
  greet(offset: number): void {
    this.says({
      type: "hello",
      offset,
      mode: "driver",
      driver: "me",
      cols: 80,
      rows: 24,
      client: 1,
      live: true,
    });
  }
  picture(offset: number, text: string): void {
    this.says({ type: "snapshot", offset, cols: 80, rows: 24, bytes: text.length });
    this.output(text);
  }
}

let wires: Wire[];
let timers: { due: number; act: () => void }[];
let clock: number;
let links: Link[];
let steps: Step[];
let online: boolean;
let network: (online: boolean) => void;
let why: "signed_out" | "gone" | "paused" | "unknown";

const environment: Environment = {
  open(address) {
    const wire = new Wire(address);
    wires.push(wire);
    return wire as unknown as WebSocket;
  },
  failureReason: () => Promise.resolve(why),
  setTimer(milliseconds, act) {
    const timer = { due: clock + milliseconds, act };
    timers.push(timer);
    return () => {
      timers = timers.filter((other) => other !== timer);
    };
  },
  now: () => clock,
  random: () => 0,
  online: () => online,
  watchNetwork(act) {
    network = act;
    return () => {};
  },
};

function pass(milliseconds: number): void {
  const until = clock + milliseconds;
  for (;;) {
    const next = timers.filter((timer) => timer.due <= until).sort((a, b) => a.due - b.due)[0];
    if (!next) break;
    clock = next.due;
    timers = timers.filter((timer) => timer !== next);
    next.act();
  }
  clock = until;
}

function start(): TerminalSocket {
  return new TerminalSocket("/ws", "me", "driver", environment, {
    link: (link) => links.push(link),
    step: (step) => steps.push(step),
  });
}

const wire = (): Wire => wires.at(-1)!;
const typed = (text: string): Uint8Array => new TextEncoder().encode(text);

beforeEach(() => {
  wires = [];
  timers = [];
  clock = 0;
  links = [];
  steps = [];
  online = true;
  why = "unknown";
});

describe("a terminal's socket", () => {
  test("begins with a picture and resumes after the last byte", () => {
    start();
    expect(wire().address).toBe("/ws?mode=driver&name=me&resume=false&compress=gzip");
    wire().greet(10);
    wire().picture(10, "pic");
    wire().output("abc");
    wire().breaks();
    expect(links.at(-1)).toEqual({ state: "waiting", at: 125, attempt: 1 });
    pass(125);
    expect(wire().address).toBe("/ws?mode=driver&name=me&resume=false&compress=gzip&from=13");
    wire().greet(13);
    expect(links.at(-1)).toEqual({ state: "connected" });
    wire().output("d");
    expect(steps.filter((step) => step.do === "write").length).toBe(2);
    expect(steps.filter((step) => step.do === "picture").length).toBe(1);
  });

  test("decompresses a picture, and applies messages that arrive meanwhile after it", async () => {
    start();
    wire().greet(10);
    const text = "picture ".repeat(200);
    wire().says({ type: "snapshot", offset: 10, cols: 80, rows: 24, bytes: text.length, encoding: "gzip" });
    const squeezed = gzipSync(text);
    wire().onmessage?.({ data: new Uint8Array(squeezed).buffer });
    wire().output("abc");
    wire().says({ type: "notice", text: "later" });
    await vi.waitFor(() => expect(steps.at(-1)).toEqual({ do: "notice", text: "later" }));
    expect(steps.map((step) => step.do)).toEqual(["hello", "picture", "write", "notice"]);
    expect(steps[1]).toMatchObject({ bytes: typed(text) });
  });

  test("reconnects when a compressed picture is damaged", async () => {
    start();
    wire().greet(10);
    wire().says({ type: "snapshot", offset: 10, cols: 80, rows: 24, bytes: 3, encoding: "gzip" });
    wire().output("not gzip");
    await vi.waitFor(() => expect(links.at(-1)).toMatchObject({ state: "waiting" }));
  });

  test("waits longer after each failure, and resets the wait after a greeting", () => {
    start();
    const waits: number[] = [];
    for (let n = 0; n < 4; n += 1) {
      wire().breaks();
      const link = links.at(-1)!;
      if (link.state !== "waiting") throw new Error(link.state);
      waits.push(link.at - clock);
      pass(link.at - clock);
    }
    expect(waits).toEqual([125, 250, 500, 1000]);
    wire().greet(0);
    wire().breaks();
    expect(links.at(-1)).toMatchObject({ at: clock + 125 });
  });

  test("sends input only over an open connection", () => {
    const socket = start();
    expect(socket.input(typed("x"))).toBe(false);
    wire().greet(0);
    expect(socket.input(typed("x"))).toBe(true);
    expect(wire().sent).toEqual(["x"]);
    wire().breaks();
    expect(socket.input(typed("y"))).toBe(false);
  });

  test("requests the same mode again after a reconnect", () => {
    const socket = start();
    wire().greet(0);
    socket.send({ type: "hand_back" });
    wire().breaks();
    pass(125);
    expect(wire().address).toContain("mode=viewer");
  });

  test("after a protocol error, it reconnects and requests a picture", () => {
    start();
    wire().greet(10);
    wire().picture(10, "pic");
    wire().says({ type: "snapshot", offset: 20, cols: 80, rows: 24, bytes: 9 });
    wire().output("short");
    pass(125);
    expect(wire().address).toBe("/ws?mode=driver&name=me&resume=false&compress=gzip");
  });

  test("disconnects when the screen falls behind, and takes a new picture once it has caught up", () => {
    const socket = start();
    wire().greet(0);
    wire().picture(0, "");
    wire().output("x".repeat(MAX_PENDING_BYTES));
    expect(links.at(-1)).toEqual({ state: "connected" });
    const first = wire();
    first.output("y");
    expect(links.at(-1)).toEqual({ state: "catching_up" });
    expect(first.readyState).toBe(3);
    first.output("never seen");
    socket.drawn(MAX_PENDING_BYTES / 2);
    expect(wires.length).toBe(1);
    socket.drawn(MAX_PENDING_BYTES / 2);
    expect(wires.length).toBe(2);
    expect(wire().address).toBe("/ws?mode=driver&name=me&resume=false&compress=gzip");
  });

  test("a picture of any size is drawn before another one is requested", () => {
    start();
    wire().greet(0);
    wire().picture(0, "x".repeat(MAX_PENDING_BYTES * 2));
    wire().output("y".repeat(MAX_PENDING_BYTES));
    expect(links.at(-1)).toEqual({ state: "connected" });
    wire().output("y");
    expect(links.at(-1)).toEqual({ state: "catching_up" });
  });

  test("detects a silent connection", () => {
    start();
    wire().greet(0);
    pass(15_000);
    expect(wire().sent).toEqual([{ type: "ping" }]);
    wire().says({ type: "pong" });
    pass(15_000);
    expect(wire().sent.length).toBe(2);
    pass(10_000);
    expect(links.at(-1)?.state).toBe("waiting");
  });

  test("disconnects when the browser goes offline, and reconnects as soon as it is online", () => {
    start();
    wire().greet(0);
    wire().picture(0, "abc");
    online = false;
    network(false);
    expect(links.at(-1)).toEqual({ state: "offline" });
    pass(60_000);
    expect(wires.length).toBe(1);
    online = true;
    network(true);
    expect(wires.length).toBe(2);
    expect(wire().address).toContain("from=0");
  });

  test("does not reconnect after a permanent error", async () => {
    for (const end of ["signed_out", "gone"] as const) {
      why = end;
      start();
      wire().breaks();
      await Promise.resolve();
      expect(links.at(-1)).toEqual({ state: "ended", why: end });
      const before = wires.length;
      pass(60_000);
      expect(wires.length).toBe(before);
    }
  });

  test("does not reconnect to a paused instance until it is retried", async () => {
    why = "paused";
    const socket = start();
    wire().breaks();
    await Promise.resolve();
    expect(links.at(-1)).toEqual({ state: "paused" });
    network(true);
    pass(60_000);
    expect(wires.length).toBe(1);
    socket.retry();
    expect(wires.length).toBe(2);
  });

  test("sends nothing after it was closed", () => {
    const socket = start();
    wire().greet(0);
    const first = wire();
    socket.close();
    first.output("late");
    pass(60_000);
    expect(wires.length).toBe(1);
    expect(steps.map((step) => step.do)).toEqual(["hello"]);
  });
});
