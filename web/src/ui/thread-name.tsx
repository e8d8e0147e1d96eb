/** What a thread is called: by the name of its sandbox if that has one, else by its id. */

import { createContext } from "preact";
import { useContext } from "preact/hooks";
import { list } from "../api/client.ts";
import { useResource } from "../api/resource.ts";
import type { Sandbox } from "../api/types.ts";

/** The names of sandboxes, by thread. */
export type ThreadNames = ReadonlyMap<string, string>;

export const ThreadNamesContext = createContext<ThreadNames>(new Map());

/** Fetches the names of the sandboxes. */
export function useSandboxNames(): ThreadNames {
  const sandboxes = useResource<Sandbox[]>(
    "names of sandboxes",
    () => list<Sandbox>("/api/sandboxes?limit=1000", 2000),
    (event) => event.name.startsWith("thread"),
    1000,
  );
  return new Map(
    (sandboxes.value ?? []).flatMap(({ thread_id, name }): [string, string][] =>
      name ? [[thread_id, name]] : [],
    ),
  );
}

export function useThreadName(thread: string): string {
  return useContext(ThreadNamesContext).get(thread) ?? thread;
}

export function ThreadName({ thread }: { thread: string }) {
  return <span title={thread}>{useThreadName(thread)}</span>;
}
