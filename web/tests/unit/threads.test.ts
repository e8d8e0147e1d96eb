import { describe, expect, test } from "vitest";
import { type AppEvent, parseEvent } from "../../src/api/events.ts";
import { ChangedThreads, mergeThreads } from "../../src/api/threads.ts";
import type { Thread } from "../../src/api/types.ts";
import { rowsInView } from "../../src/ui/windowed.ts";

const thread = (id: string, updated_at = ""): Thread =>
  ({ thread_id: id, lease_id: `lease-${id}`, updated_at }) as Thread;

const event = (of: Partial<AppEvent>): AppEvent => ({
  name: "command_ended",
  thread: null,
  terminal: null,
  lease: null,
  project: null,
  command: null,
  waiting: null,
  ...of,
});

describe("the list of threads", () => {
  test("fetches threads that events name, directly or by their lease", () => {
    const changed = new ChangedThreads();
    const known = [thread("a"), thread("b")];
    expect(changed.take()).toBe("all");
    changed.add(event({ thread: "a" }), known);
    changed.add(event({ thread: "new" }), known);
    changed.add(event({ lease: "lease-b" }), known);
    expect(changed.take()).toEqual(["a", "new", "b"]);
    changed.add(event({ thread: "a" }), known);
    changed.add(event({ lease: "lease-unknown" }), known);
    expect(changed.take()).toBe("all");
  });

  test("is not fetched for a command, whose event names its thread", () => {
    const changed = new ChangedThreads();
    const known = [thread("a"), thread("b")];
    const ended = {
      id: 7,
      type: "command_ended",
      thread_id: "b",
      terminal_id: "term_b",
      command_id: "cmd_1",
    };
    changed.add(parseEvent(ended.type, JSON.stringify(ended)), known);
    expect(changed.take()).toEqual(["b"]);
  });

  test("is fetched completely after many changes", () => {
    const changed = new ChangedThreads();
    for (let nth = 0; nth < 50; nth += 1) changed.add(event({ thread: `t${nth}` }), []);
    expect(changed.take()).toBe("all");
  });

  test("adds fetched threads, and removes deleted ones", () => {
    const fetched = new Map([
      ["b", null],
      ["c", thread("c", "later")],
      ["d", thread("d")],
      ["gone", null],
    ]);
    const merged = mergeThreads([thread("a"), thread("b"), thread("c")], fetched);
    expect(merged).toEqual([thread("a"), thread("c", "later"), thread("d")]);
  });
});

test("only rows near the viewport are rendered, and spacers replace the others", () => {
  expect(rowsInView(80, 40, 0, 800)).toEqual({ from: 0, to: 80, above: 0, below: 0 });
  for (const top of [-50, 0, 399, 400, 12_345, 39_200, 1e6]) {
    const { from, to, above, below } = rowsInView(1000, 40, top, 800);
    expect(above + below + (to - from) * 40).toBe(40_000);
    expect(to - from).toBeLessThanOrEqual(70);
    const first = Math.min(Math.max(0, Math.floor(top / 40)), 999);
    expect(from).toBeLessThanOrEqual(first);
    expect(to).toBeGreaterThanOrEqual(Math.min(1000, first + 20));
  }
});
