/** What a thread is doing, from its entry in the list. */

import type { LastCommand, Thread } from "../api/types.ts";
import type { Activity } from "./activity.ts";

export type ThreadTone = "good" | "warn" | "bad" | "busy" | "quiet";

/** What a thread does, the most urgent first. */
export const SITUATIONS = ["waiting", "running", "failed", "paused", "suspended", "idle"] as const;
export type Situation = (typeof SITUATIONS)[number];

/** Whether a command of the thread is running. Nothing runs in an instance that is paused or gone. */
export const isRunning = (thread: Thread): boolean =>
  thread.last_command?.running === true && !["paused", "dead"].includes(thread.sandbox?.status ?? "");

/** Whether a running command of the thread waits for input. */
export const isWaiting = (thread: Thread): boolean =>
  isRunning(thread) && thread.last_command?.waiting_for_input === true;

/** What the commands of a thread do, as far as that is more urgent than their results. */
export const threadActivity = (thread: Thread): Activity =>
  isWaiting(thread) ? "waiting" : isRunning(thread) ? "running" : "idle";

/** Whether a command ended without success. */
export const commandFailed = (last: LastCommand | null | undefined): boolean =>
  last != null && !last.running && last.exit_code !== 0;

/** How a command that failed ended: `exit 2`, `timed out`. */
export const failureText = (last: LastCommand): string =>
  last.exit_code === null ? last.status.replace("_", " ") : `exit ${last.exit_code}`;

/**
 * The group of a thread; `suspended` has the threads whose sandbox is suspended. A thread in `asked`, which
 * has asked the person, waits for the answer unless it runs a command meanwhile.
 */
export function situationOf(
  thread: Thread,
  suspended: ReadonlySet<string>,
  asked: ReadonlySet<string>,
): Situation {
  if (isWaiting(thread)) return "waiting";
  if (isRunning(thread)) return "running";
  if (asked.has(thread.thread_id)) return "waiting";
  switch (thread.sandbox?.status) {
    case "paused":
      return "paused";
    case "dead":
    case "failed":
    case "unreachable":
      return "failed";
    default:
      if (suspended.has(thread.thread_id)) return "suspended";
      return commandFailed(thread.last_command) ? "failed" : "idle";
  }
}

/** The state of a thread: what it does while its instance runs, else the state of the instance. */
export function threadState(thread: Thread): { text: string; tone: ThreadTone } {
  const status = thread.sandbox?.status ?? "none";
  if (isWaiting(thread)) return { text: "waiting for input", tone: "warn" };
  if (isRunning(thread)) return { text: "running", tone: "busy" };
  switch (status) {
    case "none":
      return { text: "not started", tone: "quiet" };
    case "running":
      return commandFailed(thread.last_command)
        ? { text: "failed", tone: "bad" }
        : { text: "idle", tone: "quiet" };
    case "paused":
      return { text: "paused", tone: "warn" };
    case "dead":
    case "failed":
    case "unreachable":
      return { text: status, tone: "bad" };
    default:
      return { text: status, tone: "busy" };
  }
}

export type Groups = Record<Situation, Thread[]>;

const startedAt = (thread: Thread): string => thread.last_command?.started_at ?? thread.updated_at;

/** The threads by what they do: those that run in the order of their start, all others latest first. */
export function groupThreads(
  threads: readonly Thread[],
  suspended: ReadonlySet<string>,
  asked: ReadonlySet<string>,
): Groups {
  const groups: Groups = { waiting: [], running: [], failed: [], paused: [], suspended: [], idle: [] };
  for (const thread of threads) groups[situationOf(thread, suspended, asked)].push(thread);
  for (const situation of SITUATIONS) {
    groups[situation].sort(
      situation === "waiting" || situation === "running"
        ? (a, b) => Date.parse(startedAt(a)) - Date.parse(startedAt(b))
        : (a, b) => Date.parse(b.updated_at) - Date.parse(a.updated_at),
    );
  }
  return groups;
}
