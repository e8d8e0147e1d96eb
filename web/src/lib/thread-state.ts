/** What a thread is doing, from its entry in the list. */

import type { Thread } from "../api/types.ts";
import { isUnfinished } from "./timeline.ts";

export type ThreadTone = "good" | "warn" | "bad" | "busy" | "quiet";

/** Whether a command of the thread is running. The list reports a running command as queued. */
export const isRunning = (thread: Thread): boolean =>
  thread.sandbox?.status !== "paused" && thread.last_command != null && isUnfinished(thread.last_command);

/** Whether the last command of the thread failed. */
const lastFailed = ({ last_command: last }: Thread): boolean =>
  last != null && !isUnfinished(last) && last.exit_code !== 0;

/** The state of a thread: what it does while its instance runs, else the state of the instance. */
export function threadState(thread: Thread): { text: string; tone: ThreadTone } {
  const status = thread.sandbox?.status ?? "none";
  if (isRunning(thread)) return { text: "running", tone: "busy" };
  switch (status) {
    case "none":
      return { text: "not started", tone: "quiet" };
    case "running":
      return lastFailed(thread) ? { text: "failed", tone: "bad" } : { text: "idle", tone: "quiet" };
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
