/** All threads: what each is doing, and on which provider. */

import { useState } from "preact/hooks";
import { list, path, send } from "../api/client.ts";
import type { Resource } from "../api/resource.ts";
import type { Provider, Thread } from "../api/types.ts";
import { go, threadAddress } from "../lib/router.ts";
import { commandFailed, failureText, isRunning, threadState } from "../lib/thread-state.ts";
import { type Answers, ask } from "../ui/dialogs.tsx";
import { Ago, Badge, Button, Empty, Failure } from "../ui/parts.tsx";
import { ThreadName } from "../ui/thread-name.tsx";
import { MAX_WHOLE_ROWS, useRowWindow } from "../ui/windowed.ts";

/** Opens the dialog that creates a thread, and goes to the thread. */
export async function newThread(): Promise<void> {
  const providers = await list<Provider>("/api/providers").catch(() => []);
  const available = providers.filter((provider) => provider.available !== false).map(({ name }) => name);
  const answers = await ask({
    title: "New thread",
    text: "Creates a thread with a session, a terminal and a sandbox to run in.",
    action: "Create",
    fields: [
      { name: "thread", label: "Name", value: `thread-${Date.now().toString(36)}` },
      { name: "provider", label: "Provider", options: ["", ...available], optional: true },
      { name: "cwd", label: "Working directory", hint: "default: the project's workspace", optional: true },
      { name: "memory", label: "Memory", hint: "for example 512m or 1g", optional: true },
      { name: "cpus", label: "CPUs", hint: "for example 0.5 or 2", optional: true },
      { name: "egress", label: "Network access", hint: "none, public, all, or host:port,…", optional: true },
    ],
    submit: createThread,
    failed: "Couldn't create the thread.",
  });
  if (answers) go(threadAddress(answers.thread!));
}

function createThread(answers: Answers): Promise<unknown> {
  const given = (...names: string[]): Record<string, string> =>
    Object.fromEntries(names.flatMap((name) => (answers[name] ? [[name, answers[name]]] : [])));
  const sandbox = given("memory", "cpus", "egress");
  const body = { ...given("provider", "cwd"), ...(Object.keys(sandbox).length > 0 && { sandbox }) };
  return send("PUT", path("api", "threads", answers.thread!), body);
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
          <Empty title="No threads match the filter." command="stead thread ls">
            <p>The filter is compared with the name, the project and the last command.</p>
            <Button onClick={() => setFilter("")}>Clear the filter</Button>
          </Empty>
        ) : (
          <Empty title="No threads yet." command="stead exec --thread demo -- 'echo hello'">
            <p>Threads appear when an agent runs its first command. Create one here, or run:</p>
            <Button tone="main" onClick={newThread}>
              New thread
            </Button>
          </Empty>
        ))}
      {shown && shown.length > 0 && <ThreadTable threads={shown} />}
    </main>
  );
}

function ThreadTable({ threads }: { threads: Thread[] }) {
  const { list, rows } = useRowWindow(threads.length);
  const isLong = threads.length > MAX_WHOLE_ROWS;
  return (
    <div class="table-box">
      <table
        class={`table${isLong ? " even-rows" : ""}`}
        aria-rowcount={isLong ? threads.length + 1 : undefined}
      >
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
              Viewers
            </th>
            <th scope="col">Last used</th>
          </tr>
        </thead>
        <tbody ref={list}>
          {rows.above > 0 && <LeftOut height={rows.above} />}
          {threads.slice(rows.from, rows.to).map((thread, index) => (
            <tr key={thread.thread_id} aria-rowindex={isLong ? rows.from + index + 2 : undefined}>
              <th scope="row">
                <a class="name" href={threadAddress(thread.thread_id)}>
                  <ThreadName thread={thread.thread_id} />
                </a>
                {thread.project_id && <span class="quiet-text project">{thread.project_id}</span>}
              </th>
              <td>
                <Badge tone={threadState(thread).tone}>{threadState(thread).text}</Badge>
              </td>
              <td class="wide-only">{thread.sandbox?.type ?? ""}</td>
              <td class="wide-only">{thread.last_command && <LastCommand last={thread.last_command} />}</td>
              <td class="wide-only">{attached(thread)}</td>
              <td>{isRunning(thread) ? "now" : <Ago time={thread.updated_at} />}</td>
            </tr>
          ))}
          {rows.below > 0 && <LeftOut height={rows.below} />}
        </tbody>
      </table>
    </div>
  );
}

/** Takes the place of rows that are out of view. */
function LeftOut({ height }: { height: number }) {
  return (
    <tr class="left-out">
      <td colSpan={6} height={height} />
    </tr>
  );
}

/** The state of an instance, for a person. */
export const statusText = (status: string | undefined): string =>
  status === undefined || status === "none" ? "not started" : status;

function attached(thread: Thread): string {
  if (!thread.clients) return "None";
  return thread.driver ? `${thread.clients} · ${thread.driver} has control` : String(thread.clients);
}

function LastCommand({ last }: { last: NonNullable<Thread["last_command"]> }) {
  return (
    <span class="last-command">
      {commandFailed(last) && <Badge tone="bad">{failureText(last)}</Badge>}
      <code class="cut">{last.command}</code>
    </span>
  );
}
