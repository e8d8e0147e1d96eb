/** Positions in the replay of a recording: a position is the number of events that were drawn. */

import type { Command } from "../api/types.ts";
import { eventsBefore, type RecordedEvent, type Recording, secondOf } from "./recording.ts";
import { beganAt } from "./timeline.ts";

/** The point of a recording at which the output of a command begins. */
export interface Marker {
  position: number;
  command: Command;
}

/** Cuts output events so that an event ends at each of the offsets that lie inside one. */
export function cutAtAll(events: readonly RecordedEvent[], offsets: readonly number[]): RecordedEvent[] {
  const wanted = [...new Set(offsets)].sort((a, b) => a - b);
  const encoder = new TextEncoder();
  const decoder = new TextDecoder();
  let next = 0;
  return events.flatMap((event): RecordedEvent[] => {
    if (!("output" in event) || event.end === null) return [event];
    const { at, end } = event;
    if (wanted[next] === undefined || wanted[next]! > end) return [event];
    const bytes = encoder.encode(event.output);
    const parts: RecordedEvent[] = [];
    let from = end - bytes.length;
    const start = from;
    const cut = (to: number): void => {
      const output = decoder.decode(bytes.subarray(from - start, to - start));
      parts.push({ at, output, end: to });
      from = to;
    };
    for (; wanted[next] !== undefined && wanted[next]! <= end; next += 1) {
      if (wanted[next]! > from && wanted[next]! < end) cut(wanted[next]!);
    }
    cut(end);
    return parts;
  });
}

/**
 * The position at an offset, given events that are cut there. Null if the recording ends before; 0 if its output
 * up to there was not kept.
 */
export function positionAtOffset(events: readonly RecordedEvent[], offset: number): number | null {
  const index = events.findIndex((event) => "output" in event && event.end !== null && event.end >= offset);
  const event = events[index];
  if (!event || !("output" in event)) return null;
  return event.end === offset ? index + 1 : index;
}

/** The markers of commands, in the order of the recording. Commands whose output was not kept have none. */
export function markersOf(
  recording: Recording,
  events: readonly RecordedEvent[],
  commands: readonly Command[],
): Marker[] {
  const ends: { end: number; position: number }[] = [];
  let start: number | null = null;
  events.forEach((event, index) => {
    if (!("output" in event) || event.end === null) return;
    start ??= event.end - new TextEncoder().encode(event.output).length;
    ends.push({ end: event.end, position: index + 1 });
  });
  const first = start ?? 0;
  const positionOf = (command: Command): number | null => {
    const { offset_start: offset } = command;
    if (typeof offset !== "number" || ends.length === 0) {
      const began = Date.parse(beganAt(command));
      if (recording.began === null || !Number.isFinite(began) || began < recording.began) return null;
      return eventsBefore(events, secondOf(recording, began));
    }
    if (offset < first) return null;
    return ends.findLast(({ end }) => end <= offset)?.position ?? 0;
  };
  return commands
    .flatMap((command): Marker[] => {
      const position = positionOf(command);
      return position === null ? [] : [{ position, command }];
    })
    .sort((a, b) => a.position - b.position || beganAt(a.command).localeCompare(beganAt(b.command)));
}

/** The index of the last marker at or before a position; -1 before the first. */
export const markerAt = (markers: readonly Marker[], position: number): number =>
  markers.findLastIndex((marker) => marker.position <= position);

/** The position of the next or previous command; null if there is none. */
export function neighbour(
  markers: readonly Marker[],
  position: number,
  direction: "next" | "previous",
): number | null {
  const found =
    direction === "next"
      ? markers.find((marker) => marker.position > position)
      : markers.findLast((marker) => marker.position < position);
  return found?.position ?? null;
}

/** The position at a moment, given when each event is played. */
export function positionAt(times: readonly number[], moment: number): number {
  let low = 0;
  let high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle]! <= moment) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The moment at which the last event before a position is played. */
export const momentOf = (times: readonly number[], position: number): number =>
  position > 0 ? (times[Math.min(position, times.length) - 1] ?? 0) : 0;
