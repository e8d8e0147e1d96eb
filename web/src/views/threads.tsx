/** All threads: what they are doing and on what. */

import { useState } from "preact/hooks";
import { list, path, send } from "../api/client.ts";
import { type Resource, useResource } from "../api/resource.ts";
import type { Provider, Thread } from "../api/types.ts";
import { go, threadAddress } from "../lib/router.ts";
import { ask, attempt } from "../ui/dialogs.tsx";
import { Ago, Badge, Button, Empty, Failure, toneOf } from "../ui/parts.tsx";

/** The threads with what they stand on, kept fresh. */
export function useThreads(): Resource<Thread[]> {
  return useResource<Thread[]>(
    "threads",
    () => list<Thread>("/api/threads?limit=1000", 2000),
    (what) => what.name !== "project_expiring",
    1000,
  );
}

/** Asks for a name and makes the thread. */
export async function newThread(): Promise<void> {
  const providers = await list<Provider>("/api/providers").catch(() => []);
  const given = await ask({
    title: "New thread",
    text: "A thread comes with a session, a terminal and a lease on compute.",
    action: "Create",
    fields: [
      { name: "thread", label: "Name", value: `thread-${Date.now().toString(36)}` },
      {
        name: "provider",
        label: "Provider",
        options: ["", ...providers.filter((one) => one.available !== false).map((one) => one.name)],
        optional: true,
      },
      { name: "cwd", label: "Start in", hint: "the project's workspace", optional: true },
      { name: "memory", label: "Memory of its sandbox", hint: "as in 512m or 1g", optional: true },
      { name: "cpus", label: "Processors of its sandbox", hint: "as in 0.5 or 2", optional: true },
      {
        name: "egress",
        label: "What it may reach",
        hint: "none, public, all, or host:port,…",
        optional: true,
      },
    ],
  });
  if (!given) return;
  const named = (...names: string[]): Record<string, string> =>
    Object.fromEntries(names.flatMap((name) => (given[name] ? [[name, given[name]]] : [])));
  const sandbox = named("memory", "cpus", "egress");
  const body = { ...named("provider", "cwd"), ...(Object.keys(sandbox).length > 0 && { sandbox }) };
  const thread = given.thread!;
  const made = await attempt(async () => {
    await send("PUT", path("api", "threads", thread), body);
    return true;
  });
  if (made) go(threadAddress(thread));
}

const lastCommand = (thread: Thread): string => thread.last_command?.command ?? "";

export function ThreadsView({ threads, filter: first }: { threads: Resource<Thread[]>; filter: string }) {
  const [filter, setFilter] = useState(first);
  const wanted = filter.trim().toLowerCase();
  const latest = [...(threads.value ?? [])].sort((a, b) => b.updated_at.localeCompare(a.updated_at));
  const shown =
    threads.value &&
    latest.filter((thread) =>
      [thread.thread_id, thread.project_id ?? "", lastCommand(thread)].some((text) =>
        text.toLowerCase().includes(wanted),
      ),
    );
  return (
    <main class="page" id="main" tabIndex={-1}>
      <header class="page-head">
        <h1>Threads</h1>
        <input
          type="search"
          placeholder="Filter"
          aria-label="Filter threads"
          value={filter}
          onInput={(event) => setFilter(event.currentTarget.value)}
        />
        <Button tone="main" onClick={newThread}>
          New thread
        </Button>
      </header>
      {threads.error !== undefined && <Failure error={threads.error} retry={threads.refresh} />}
      {shown?.length === 0 &&
        (wanted ? (
          <Empty title="No thread fits the filter." />
        ) : (
          <Empty title="No threads yet.">
            <p>An agent makes one by its first command, or you make one here.</p>
            <Button tone="main" onClick={newThread}>
              New thread
            </Button>
          </Empty>
        ))}
      {shown && shown.length > 0 && (
        <div class="table-box">
          <table class="table">
            <thead>
              <tr>
                <th scope="col">Thread</th>
                <th scope="col">Status</th>
                <th scope="col" class="wide-only">
                  Provider
                </th>
                <th scope="col" class="wide-only">
                  Last command
                </th>
                <th scope="col" class="wide-only">
                  Attached
                </th>
                <th scope="col">Used</th>
              </tr>
            </thead>
            <tbody>
              {shown.map((thread) => (
                <tr key={thread.thread_id}>
                  <th scope="row">
                    <a class="name" href={threadAddress(thread.thread_id)}>
                      {thread.thread_id}
                    </a>
                    {thread.project_id && <span class="quiet-text project">{thread.project_id}</span>}
                  </th>
                  <td>
                    <Badge tone={toneOf(thread.sandbox?.status)}>{statusWords(thread.sandbox?.status)}</Badge>
                  </td>
                  <td class="wide-only">{thread.sandbox?.type ?? ""}</td>
                  <td class="wide-only">
                    {thread.last_command && <LastCommand last={thread.last_command} />}
                  </td>
                  <td class="wide-only">{attached(thread)}</td>
                  <td>
                    <Ago time={thread.updated_at} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </main>
  );
}

/** An instance's state; one that was never needed does not exist. */
export const statusWords = (status: string | undefined): string =>
  status === undefined || status === "none" ? "not started" : status;

function attached(thread: Thread): string {
  if (!thread.clients) return "nobody";
  return thread.driver ? `${thread.clients}, ${thread.driver} drives` : String(thread.clients);
}

function LastCommand({ last }: { last: NonNullable<Thread["last_command"]> }) {
  const failed = last.status !== "running" && last.status !== "queued" && last.exit_code !== 0;
  return (
    <span class="last-command">
      {failed && (
        <Badge tone="bad">
          {last.exit_code === null ? last.status.replace("_", " ") : `exit ${last.exit_code}`}
        </Badge>
      )}
      <code class="cut">{last.command}</code>
    </span>
  );
}
