/** What the terminals of the page and the threads of the server are doing, for the title and icon of the page. */

import { useEffect, useState } from "preact/hooks";

export type Activity = "idle" | "running" | "waiting" | "failed";

/** The most urgent first. */
const URGENCY: readonly Activity[] = ["waiting", "running", "failed", "idle"];

const activities = new Map<string, Activity>();
const listeners = new Set<(activity: Activity) => void>();

/** The most urgent of some activities. */
export const mostUrgent = (all: Iterable<Activity>): Activity => {
  const present = new Set(all);
  return URGENCY.find((one) => present.has(one)) ?? "idle";
};

/** Sets what a terminal does; null when it leaves the page. */
export function setActivity(terminal: string, activity: Activity | null): void {
  if (activity === null) activities.delete(terminal);
  else activities.set(terminal, activity);
  const now = mostUrgent(activities.values());
  for (const listener of listeners) listener(now);
}

/** The most urgent activity of the page's terminals. */
export function useActivity(): Activity {
  const [activity, setCurrent] = useState(() => mostUrgent(activities.values()));
  useEffect(() => {
    listeners.add(setCurrent);
    return () => void listeners.delete(setCurrent);
  }, []);
  return activity;
}

const MARKS: Record<Activity, string> = { idle: "", running: "▶ ", waiting: "⌨ ", failed: "✕ " };

/** What happens on the whole server. */
export interface Overview {
  /** How many threads and requests wait for a person. */
  needs: number;
  /** How many threads run a command. */
  running: number;
}

/** The title of a page: of a thread and what it does, or of the whole server. */
export function pageTitle(name: string | null, activity: Activity, { needs, running }: Overview): string {
  const count = needs > 0 ? `(${needs}) ` : "";
  if (name !== null) return `${count}${MARKS[activity]}${name} · Stead`;
  return running > 0 ? `${count}Stead · ${running} running` : `${count}Stead`;
}

/** The address of the page's icon. A request to the person shows on every page. */
export function pageIcon(name: string | null, activity: Activity, { needs, running }: Overview): string {
  const shown = mostUrgent([
    activity,
    needs > 0 ? "waiting" : "idle",
    name === null && running > 0 ? "running" : "idle",
  ]);
  return shown === "idle" ? "/icon.svg" : `/icon-${shown}.svg`;
}
