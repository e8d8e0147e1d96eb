/** What the terminals of the page are doing, for the page's title and icon. */

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

/** The title of a page on which this happens. */
export const pageTitle = (name: string | null, activity: Activity): string =>
  name === null ? "Stead" : `${MARKS[activity]}${name} · Stead`;

/** The address of the page's icon. */
export const pageIcon = (activity: Activity): string =>
  activity === "idle" ? "/icon.svg" : `/icon-${activity}.svg`;
