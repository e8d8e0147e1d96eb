import { describe, expect, test } from "vitest";
import { backOff, parse, Stream } from "../../src/protocol/protocol.ts";

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const hello = (offset: number, more: object = {}): string =>
  JSON.stringify({
    type: "hello",
    offset,
    mode: "driver",
    driver: null,
    cols: 80,
    rows: 24,
    client: 7,
    live: true,
    ...more,
  });
const snapshot = (offset: number, length: number, cols = 80, rows = 24): string =>
  JSON.stringify({ type: "snapshot", offset, cols, rows, bytes: length });

/** A stream that has shown a picture at offset 100. */
function shown(): Stream {
  const stream = new Stream();
  stream.opened();
  stream.text(hello(100));
  stream.text(snapshot(100, 4));
  stream.bytes(bytes("$ ab"));
  return stream;
}

describe("reading a text frame", () => {
  const check = (frame: string, expected: unknown): void => expect(parse(frame), frame).toEqual(expected);

  test("every kind of message", () => {
    check('{"type":"resize","cols":80,"rows":24}', { type: "resize", cols: 80, rows: 24 });
    check('{"type":"title","title":"<b>x"}', { type: "title", title: "<b>x" });
    check('{"type":"gap","from":5,"to":9}', { type: "gap", from: 5, to: 9 });
    check('{"type":"driver","driver":null}', { type: "driver", driver: null, mode: null });
    check('{"type":"mode","mode":"driver"}', { type: "mode", mode: "driver" });
    check('{"type":"exit","code":null,"signal":9}', { type: "exit", code: null, signal: 9 });
    check('{"type":"error","code":"not_driver","detail":"no"}', {
      type: "error",
      code: "not_driver",
      detail: "no",
    });
    check('{"type":"pong"}', { type: "pong" });
  });

  test("an unknown type is ignored, a malformed one is refused", () => {
    check('{"type":"weather","sun":true}', null);
    check("{", undefined);
    check("[]", null);
    check('"hello"', undefined);
    check('{"type":"resize","cols":0,"rows":24}', undefined);
    check('{"type":"resize","cols":80.5,"rows":24}', undefined);
    check('{"type":"snapshot","offset":-1,"cols":80,"rows":24,"bytes":2}', undefined);
    check('{"type":"gap","from":"0","to":9}', undefined);
  });
});

describe("a stream", () => {
  test("shows the picture first, then output, and counts only output", () => {
    const stream = new Stream();
    stream.opened();
    expect(stream.text(hello(100))).toEqual([
      { do: "hello", mode: "driver", driver: null, live: true, resumed: false, title: "" },
    ]);
    expect(stream.offset).toBe(null);
    expect(stream.text(snapshot(100, 4, 90, 30))).toEqual([]);
    expect(stream.bytes(bytes("$ ab"))).toEqual([
      { do: "picture", cols: 90, rows: 30, bytes: bytes("$ ab") },
    ]);
    expect(stream.offset).toBe(100);
    expect(stream.bytes(bytes("xyz"))).toEqual([{ do: "write", bytes: bytes("xyz") }]);
    expect(stream.offset).toBe(103);
  });

  test("resumes at its offset with the current size", () => {
    const stream = shown();
    stream.bytes(bytes("xyz"));
    stream.opened();
    expect(stream.text(hello(103, { cols: 100 }))).toEqual([
      { do: "hello", mode: "driver", driver: null, live: true, resumed: true, title: "" },
      { do: "resize", cols: 100, rows: 24 },
    ]);
    expect(stream.bytes(bytes("1"))).toEqual([{ do: "write", bytes: bytes("1") }]);
    expect(stream.offset).toBe(104);
  });

  test("output after a greeting with another offset is refused until a picture arrives", () => {
    const stream = shown();
    stream.opened();
    stream.text(hello(500));
    expect(stream.bytes(bytes("lost"))[0]?.do).toBe("broken");
    stream.opened();
    stream.text(hello(500));
    stream.text(snapshot(500, 0));
    expect(stream.offset).toBe(500);
  });

  test("accepts a new picture at any time", () => {
    const stream = shown();
    stream.bytes(bytes("xyz"));
    stream.text(snapshot(9000, 2));
    expect(stream.bytes(bytes("ok"))).toEqual([{ do: "picture", cols: 80, rows: 24, bytes: bytes("ok") }]);
    expect(stream.offset).toBe(9000);
  });

  test("continues at the end of a gap", () => {
    const stream = shown();
    expect(stream.text('{"type":"gap","from":100,"to":170}')).toEqual([{ do: "gap", from: 100, to: 170 }]);
    expect(stream.offset).toBe(170);
  });

  test("reports which client has control, and whether this one has", () => {
    expect(shown().text('{"type":"driver","driver":"agent","mode":"viewer"}')).toEqual([
      { do: "driver", driver: "agent" },
      { do: "mode", mode: "viewer" },
    ]);
  });

  test("does not apply a size twice", () => {
    const stream = shown();
    expect(stream.text('{"type":"resize","cols":80,"rows":24}')).toEqual([]);
    expect(stream.text('{"type":"resize","cols":81,"rows":24}')).toEqual([
      { do: "resize", cols: 81, rows: 24 },
    ]);
  });

  test("frames that do not follow from each other are refused", () => {
    const broken = (act: (stream: Stream) => { do: string }[]): void => {
      const stream = shown();
      expect(act(stream).map((step) => step.do)).toEqual(["broken"]);
    };
    broken((stream) => {
      stream.opened();
      return stream.text('{"type":"title","title":"x"}');
    });
    broken((stream) => {
      stream.text(snapshot(200, 5));
      return stream.bytes(bytes("four"));
    });
    broken((stream) => {
      stream.text(snapshot(200, 5));
      return stream.text('{"type":"notice","text":"x"}');
    });
    broken((stream) => stream.text("nonsense"));
    broken((stream) => {
      stream.forget();
      return stream.bytes(bytes("x"));
    });
  });

  test("an error may precede the greeting", () => {
    const stream = new Stream();
    stream.opened();
    expect(stream.text('{"type":"error","code":"not_found","detail":"no"}')).toEqual([
      { do: "refused", code: "not_found", detail: "no" },
    ]);
  });
});

test("the wait doubles up to ten seconds, with jitter", () => {
  expect([0, 1, 2, 3].map((attempt) => backOff(attempt, 0.999999))).toEqual([250, 500, 1000, 2000]);
  expect(backOff(0, 0)).toBe(125);
  expect(backOff(1000, 0.999999)).toBe(10_000);
});
