/** Recordings in asciicast v2, and positions in them. */

/** `end` is the offset in the terminal's output at which it ends. */
export type RecordedEvent =
  | { at: number; output: string; end: number | null }
  | { at: number; cols: number; rows: number };

export interface Recording {
  cols: number;
  rows: number;
  /** When it began, in milliseconds since 1970. */
  began: number | null;
  events: RecordedEvent[];
  /** Its length in seconds. */
  length: number;
}

interface Header {
  width?: number;
  height?: number;
  /** In whole seconds. */
  timestamp?: number;
  /** Our own addition to the format. */
  stead?: { began_ms?: number };
}

/** Parses a recording; unknown lines are skipped. */
export function parseRecording(text: string): Recording {
  const lines = text.split("\n").filter((line) => line !== "");
  const header = JSON.parse(lines[0] ?? "{}") as Header;
  const events: RecordedEvent[] = [];
  for (const line of lines.slice(1)) {
    let entry: unknown;
    try {
      entry = JSON.parse(line);
    } catch {
      // The last line of a recording that is being written may be cut.
      continue;
    }
    if (!Array.isArray(entry) || typeof entry[0] !== "number" || typeof entry[2] !== "string") continue;
    const [at, kind, data, end] = entry as [number, string, string, unknown];
    if (kind === "o") events.push({ at, output: data, end: typeof end === "number" ? end : null });
    const size = kind === "r" ? /^(\d+)x(\d+)$/.exec(data) : null;
    if (size) events.push({ at, cols: Number(size[1]), rows: Number(size[2]) });
  }
  return {
    cols: header.width ?? 80,
    rows: header.height ?? 24,
    began: header.stead?.began_ms ?? (header.timestamp === undefined ? null : header.timestamp * 1000),
    events,
    length: events.at(-1)?.at ?? 0,
  };
}

/** How many events lie at or before a time in seconds. */
export function eventsBefore(events: readonly RecordedEvent[], time: number): number {
  let low = 0;
  let high = events.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (events[middle]!.at <= time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The second of the recording at a time of day. */
export function secondOf(recording: Recording, time: string | number): number {
  const at = typeof time === "number" ? time : Date.parse(time);
  if (recording.began === null || !Number.isFinite(at)) return 0;
  return Math.min(recording.length, Math.max(0, (at - recording.began) / 1000));
}

/**
 * When each event is played: pauses are shortened to `maxPause` seconds, so that a day with three commands
 * plays in a minute.
 */
export function shortenPauses(
  events: readonly RecordedEvent[],
  maxPause: number,
): { times: number[]; length: number } {
  const times: number[] = [];
  let last = 0;
  let now = 0;
  for (const event of events) {
    now += Math.min(maxPause, Math.max(0, event.at - last));
    last = event.at;
    times.push(now);
  }
  return { times, length: now };
}
