/** Times and amounts, formatted for people. */

/** A duration of milliseconds, short: `3 ms`, `1.2 s`, `4 min 5 s`, `2 h 3 min`, `5 d 1 h`. */
export function duration(milliseconds: number): string {
  const ms = Math.max(0, Math.round(milliseconds));
  if (ms < 1000) return `${ms} ms`;
  if (ms < 10_000) return `${(Math.floor(ms / 100) / 10).toFixed(1)} s`;
  const seconds = Math.floor(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return two(minutes, "min", seconds % 60, "s");
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return two(hours, "h", minutes % 60, "min");
  return two(Math.floor(hours / 24), "d", hours % 24, "h");
}

function two(large: number, unit: string, small: number, smaller: string): string {
  return small === 0 ? `${large} ${unit}` : `${large} ${unit} ${small} ${smaller}`;
}

/** The time since something began, in whole seconds. Not negative where the server's clock is ahead. */
export function elapsed(since: string, now: number): string {
  const seconds = Math.max(0, Math.floor((now - Date.parse(since)) / 1000));
  if (!Number.isFinite(seconds)) return "";
  return seconds < 60 ? `${seconds} s` : duration(seconds * 1000);
}

/** How long ago, for people: `now`, `12 s ago`, `3 min ago`, `in 5 min`. */
export function relative(time: string | number | null | undefined, now: number): string {
  if (time === null || time === undefined) return "never";
  const at = typeof time === "number" ? time : Date.parse(time);
  if (!Number.isFinite(at)) return "unknown";
  const distance = now - at;
  const size = Math.abs(distance);
  if (size < 2000) return "now";
  const seconds = Math.floor(size / 1000);
  const minutes = Math.floor(seconds / 60);
  const hours = Math.floor(minutes / 60);
  const amount =
    seconds < 60
      ? `${seconds} s`
      : minutes < 60
        ? `${minutes} min`
        : hours < 48
          ? `${hours} h`
          : `${Math.floor(hours / 24)} d`;
  return distance >= 0 ? `${amount} ago` : `in ${amount}`;
}

/** How long ago something happened. Never in the future: the page's time lags, and clocks differ. */
export function ago(time: string | null | undefined, now: number): string {
  const at = time ? Date.parse(time) : Number.NaN;
  return relative(time, Number.isFinite(at) ? Math.max(now, at) : now);
}

/** A date: `17 Dec 2026`. */
export const day = (time: string): string =>
  new Date(time).toLocaleDateString(undefined, { day: "numeric", month: "short", year: "numeric" });

/** A count with its noun: `1 session`, `3 sessions`. */
export const plural = (count: number, noun: string): string =>
  `${count.toLocaleString()} ${noun}${count === 1 ? "" : "s"}`;

/** An amount of bytes: `512 B`, `1.5 KiB`, `20 MiB`. */
export function bytes(count: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = count;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : Number(value.toFixed(1))} ${units[unit]}`;
}

/**
 * CPU use in percent of one core, from two readings of CPU time in microseconds, `apart` milliseconds apart.
 */
export function cpuPercent(
  before: number | null | undefined,
  after: number | null | undefined,
  apart: number,
): number | null {
  if (typeof before !== "number" || typeof after !== "number" || apart <= 0 || after < before) return null;
  return Math.round((after - before) / 10 / apart);
}

/** Time of day and, if it is not today, the day. */
export function clock(time: string | null | undefined, now: number): string {
  if (!time) return "";
  const at = new Date(time);
  if (Number.isNaN(at.getTime())) return "";
  const day = new Date(now).toDateString() === at.toDateString() ? "" : `${at.toLocaleDateString()} `;
  return day + at.toLocaleTimeString(undefined, { hour12: false });
}
