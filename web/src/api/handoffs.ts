/** Hand-offs, kept up to date by events. */

import { list } from "./client.ts";
import type { AppEvent } from "./events.ts";
import { type Resource, useResource } from "./resource.ts";
import type { Handoff } from "./types.ts";

const MAX_OPEN = 500;
const MAX_RECENT = 200;

/** Deleting a terminal removes its hand-offs. */
const isAffected = (event: AppEvent): boolean =>
  event.name.startsWith("handoff_") || event.name === "terminal_deleted" || event.name === "thread_deleted";

/** The open hand-offs of all threads, oldest first. */
export const useOpenHandoffs = (): Resource<Handoff[]> =>
  useResource<Handoff[]>(
    "open hand-offs",
    async () => {
      const open = await list<Handoff>("/api/handoffs?status=open&limit=100", MAX_OPEN);
      return open.sort((a, b) => Date.parse(a.created_at) - Date.parse(b.created_at));
    },
    isAffected,
  );

/** The latest hand-offs, newest first: of one thread, or of all. */
export const useRecentHandoffs = (thread: string | null): Resource<Handoff[]> =>
  useResource<Handoff[]>(
    `hand-offs ${thread}`,
    () => {
      const query = new URLSearchParams({ limit: "100", ...(thread !== null && { thread_id: thread }) });
      return list<Handoff>(`/api/handoffs?${query}`, MAX_RECENT);
    },
    isAffected,
  );
