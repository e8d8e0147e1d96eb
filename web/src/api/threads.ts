/** All threads, kept up to date by events: one that changes is fetched alone. */

import { useRef } from "preact/hooks";
import { get, isProblem, list, path } from "./client.ts";
import type { AppEvent } from "./events.ts";
import { type Resource, useResource } from "./resource.ts";
import type { Thread } from "./types.ts";

const MAX_THREADS = 2000;
/** With more changes at once, the whole list is fetched again. */
const MAX_SINGLE_FETCHES = 20;
const PAUSE_MS = 250;

/** The threads that events changed since the last fetch. */
export class ChangedThreads {
  #changed: Set<string> | "all" = new Set();

  /** Adds the threads of an event; `known` are those that were fetched. */
  add(event: AppEvent, known: readonly Thread[]): void {
    if (this.#changed === "all") return;
    const ids =
      event.thread !== null
        ? [event.thread]
        : known
            .filter((one) => event.lease !== null && one.lease_id === event.lease)
            .map((one) => one.thread_id);
    for (const id of ids) this.#changed.add(id);
    if (ids.length === 0 || this.#changed.size > MAX_SINGLE_FETCHES) this.#changed = "all";
  }

  /** Returns what to fetch, and starts over. Without a change, everything is wanted. */
  take(): readonly string[] | "all" {
    const taken = this.#changed;
    this.#changed = new Set();
    return taken === "all" || taken.size === 0 ? "all" : [...taken];
  }
}

/** Puts the fetched threads in the place of their earlier states; null stands for one that is gone. */
export function mergeThreads(
  known: readonly Thread[],
  fetched: ReadonlyMap<string, Thread | null>,
): Thread[] {
  const merged = known.flatMap((one) => {
    const now = fetched.get(one.thread_id);
    return now === undefined ? [one] : now === null ? [] : [now];
  });
  const ids = new Set(known.map((one) => one.thread_id));
  for (const [id, thread] of fetched) if (thread && !ids.has(id)) merged.push(thread);
  return merged;
}

const fetchThread = (id: string): Promise<Thread | null> =>
  get<Thread>(path("api", "threads", id)).catch((error: unknown) => {
    if (isProblem(error, 404)) return null;
    throw error;
  });

export function useThreads(): Resource<Thread[]> {
  const known = useRef<Thread[]>([]);
  const changed = useRef(new ChangedThreads());
  return useResource<Thread[]>(
    "threads",
    async () => {
      const wanted = changed.current.take();
      known.current =
        wanted === "all"
          ? await list<Thread>("/api/threads?limit=1000", MAX_THREADS)
          : mergeThreads(
              known.current,
              new Map(await Promise.all(wanted.map(async (id) => [id, await fetchThread(id)] as const))),
            );
      return known.current;
    },
    (event) => {
      // A share changes no thread.
      if (event.name === "project_expiring" || event.name.startsWith("share_")) return false;
      changed.current.add(event, known.current);
      return true;
    },
    PAUSE_MS,
  );
}
