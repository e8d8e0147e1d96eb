import { expect, test } from "vitest";
import type { Command } from "../../src/api/types.ts";
import { parseRecording, shortenPauses } from "../../src/lib/recording.ts";
import {
  cutAtAll,
  markerAt,
  markersOf,
  momentOf,
  neighbour,
  positionAt,
  positionAtOffset,
} from "../../src/lib/replay.ts";

const recording = parseRecording(
  [
    '{"version":2,"timestamp":1000}',
    '[1,"o","one",103]',
    '[2,"r","90x20"]',
    '[3,"o","twö three",113]',
    '[60,"o","four",117]',
  ].join("\n"),
);

const command = (id: string, more: Partial<Command>): Command => ({
  command_id: id,
  terminal_id: "term_1",
  command: id,
  status: "finished",
  exit_code: 0,
  signal: null,
  stdout_bytes: 0,
  stderr_bytes: 0,
  duration_ms: 1,
  ...more,
});

test("a recording is cut only at offsets between characters", () => {
  const cut = cutAtAll(recording.events, [107, 103, 105, 107, 500, 117]);
  expect(cut).toEqual([
    { at: 1, output: "one", end: 103 },
    { at: 2, cols: 90, rows: 20 },
    { at: 3, output: "tw", end: 105 },
    { at: 3, output: "ö", end: 107 },
    { at: 3, output: " three", end: 113 },
    { at: 60, output: "four", end: 117 },
  ]);
  expect(cutAtAll(recording.events, [])).toEqual(recording.events);
  const positions = [50, 100, 103, 107, 113, 117, 118].map((offset) => positionAtOffset(cut, offset));
  expect(positions).toEqual([0, 0, 1, 4, 5, 6, null]);
});

test("a command is marked where its output begins; without an offset, where it began", () => {
  const markers = markersOf(recording, recording.events, [
    command("last", { offset_start: 113 }),
    command("by time", { started_at: "1970-01-01T00:16:42.500Z" }),
    command("first", { offset_start: 100 }),
    command("not kept", { offset_start: 40 }),
    command("before the recording", { started_at: "1970-01-01T00:00:01Z" }),
  ]);
  expect(markers.map(({ position, command: { command_id } }) => [command_id, position])).toEqual([
    ["first", 0],
    ["by time", 2],
    ["last", 3],
  ]);
  expect([0, 1, 2, 3, 4].map((position) => markerAt(markers, position))).toEqual([0, 0, 1, 2, 2]);
  expect(markerAt([], 3)).toBe(-1);
  expect(neighbour(markers, 2, "next")).toBe(3);
  expect(neighbour(markers, 2, "previous")).toBe(0);
  expect(neighbour(markers, 3, "next")).toBe(null);
});

test("moments and positions convert into each other, with and without idle time", () => {
  const skipped = shortenPauses(recording.events, 2);
  expect(skipped).toEqual({ times: [1, 2, 3, 5], length: 5 });
  const whole = shortenPauses(recording.events, Number.POSITIVE_INFINITY);
  expect(whole.length).toBe(60);
  for (const { times } of [skipped, whole]) {
    for (let position = 1; position <= times.length; position += 1) {
      expect(positionAt(times, momentOf(times, position))).toBe(position);
    }
    expect(momentOf(times, 0)).toBe(0);
    expect(positionAt(times, 0.5)).toBe(0);
  }
});
