/** The home view: which threads wait for a person, run a command, failed or rest. */

import type { ComponentChildren } from "preact";
import { list } from "../api/client.ts";
import { useLastLine } from "../api/last-lines.ts";
import { usePrompt } from "../api/prompt.ts";
import { type Resource, useResource } from "../api/resource.ts";
import type { Handoff, Sandbox, Thread } from "../api/types.ts";
import { threadAddress } from "../lib/router.ts";
import {
  commandFailed,
  failureText,
  type Groups,
  groupThreads,
  SITUATIONS,
  type Situation,
} from "../lib/thread-state.ts";
import { StopButton } from "../ui/command-actions.tsx";
import { NotificationPermission } from "../ui/notification-permission.tsx";
import { Ago, Badge, Button, Elapsed, Empty, Failure, type Tone } from "../ui/parts.tsx";
import { ThreadName } from "../ui/thread-name.tsx";
import { HandoffCard } from "./handoff.tsx";
import { newThread } from "./threads.tsx";

/** The threads whose sandbox is suspended. */
function useSuspended(): ReadonlySet<string> {
  const suspended = useResource<Sandbox[]>(
    "suspended sandboxes",
    () => list<Sandbox>("/api/sandboxes?state=suspended&limit=1000", 2000),
    (event) => ["instance", "lease", "thread"].some((noun) => event.name.startsWith(noun)),
    1000,
  );
  return new Set((suspended.value ?? []).map((sandbox) => sandbox.thread_id));
}

interface Props {
  threads: Resource<Thread[]>;
  /** The open hand-offs. */
  handoffs: Handoff[];
}

export function NowView({ threads, handoffs }: Props) {
  const suspended = useSuspended();
  const asked = new Set(handoffs.map((handoff) => handoff.thread_id));
  const groups = groupThreads(threads.value ?? [], suspended, asked);
  // A thread that has asked is shown by its request.
  const waiting = groups.waiting.filter((thread) => !asked.has(thread.thread_id));
  return (
    <main class="page now" id="main" tabIndex={-1}>
      <header class="page-head">
        <h1>Now</h1>
        <NotificationPermission quiet />
        <Button tone="main" onClick={newThread}>
          New thread
        </Button>
      </header>
      {threads.error !== undefined && <Failure error={threads.error} retry={threads.refresh} />}
      {threads.value?.length === 0 && (
        <Empty title="No threads yet." command="stead exec --thread demo -- 'echo hello'">
          <p>Threads appear when an agent runs its first command. Create one here, or run:</p>
        </Empty>
      )}
      {threads.value && threads.value.length > 0 && (
        <>
          <Summary groups={groups} waiting={handoffs.length + waiting.length} />
          <Group title="Waiting for a person" situation="waiting" threads={waiting} handoffs={handoffs}>
            {(thread) => <RunningRow thread={thread} />}
          </Group>
          <Group title="Running" situation="running" threads={groups.running}>
            {(thread) => <RunningRow thread={thread} />}
          </Group>
          <Group title="Failed" situation="failed" threads={groups.failed}>
            {(thread) => <RestingRow thread={thread} />}
          </Group>
          <Group title="Paused" situation="paused" threads={groups.paused}>
            {(thread) => <RestingRow thread={thread} />}
          </Group>
          <Group title="Suspended" situation="suspended" threads={groups.suspended}>
            {(thread) => <RestingRow thread={thread} />}
          </Group>
          <Group title="Idle" situation="idle" threads={groups.idle}>
            {(thread) => <RestingRow thread={thread} />}
          </Group>
        </>
      )}
    </main>
  );
}

const TONES: Record<Situation, Tone> = {
  waiting: "warn",
  running: "busy",
  failed: "bad",
  paused: "quiet",
  suspended: "quiet",
  idle: "quiet",
};

/** The number of threads in each situation, as links to their groups. */
function Summary({ groups, waiting }: { groups: Groups; waiting: number }) {
  const counts = SITUATIONS.map((situation): [Situation, number] => [
    situation,
    situation === "waiting" ? waiting : groups[situation].length,
  ]).filter(([situation, count]) => count > 0 || situation === "running");
  return (
    <p class="now-summary" role="status">
      {counts.map(([situation, count]) => (
        <a
          key={situation}
          class={count > 0 ? TONES[situation] : "quiet"}
          href={`#${situation}`}
          onClick={(event) => {
            event.preventDefault();
            document.getElementById(situation)?.focus();
          }}
        >
          <strong>{count}</strong> {situation}
        </a>
      ))}
    </p>
  );
}

/** Rows of a group; the list of all threads has the rest. */
const MAX_ROWS = 50;

interface GroupProps {
  title: string;
  situation: Situation;
  threads: Thread[];
  handoffs?: Handoff[];
  children: (thread: Thread) => ComponentChildren;
}

function Group({ title, situation, threads, handoffs = [], children }: GroupProps) {
  const count = threads.length + handoffs.length;
  if (count === 0) return null;
  return (
    <section class={`now-group ${TONES[situation]}`} aria-labelledby={situation}>
      <h2 id={situation} tabIndex={-1}>
        {title} <span class="quiet-text">{count}</span>
      </h2>
      {handoffs.map((handoff) => (
        <HandoffCard key={handoff.handoff_id} handoff={handoff} place="list" />
      ))}
      {threads.length > 0 && (
        <ul>
          {threads.slice(0, MAX_ROWS).map((thread) => (
            <li key={thread.thread_id}>{children(thread)}</li>
          ))}
        </ul>
      )}
      {threads.length > MAX_ROWS && (
        <p>
          <a href="/ui/threads">Show {threads.length - MAX_ROWS} more in the list of all threads</a>
        </p>
      )}
    </section>
  );
}

function NameCell({ thread }: { thread: Thread }) {
  return (
    <span class="now-name">
      <a class="name" href={threadAddress(thread.thread_id)}>
        <ThreadName thread={thread.thread_id} />
      </a>
      {thread.driver ? (
        <Badge tone="good">{thread.driver} has control</Badge>
      ) : (
        <span class="quiet-text wide-only">{thread.sandbox?.type}</span>
      )}
    </span>
  );
}

/** A thread that runs a command: the command, the last line of its screen, the elapsed time. */
function RunningRow({ thread }: { thread: Thread }) {
  const command = thread.last_command;
  const line = useLastLine(command?.terminal_id);
  const waiting = command?.waiting_for_input === true;
  const prompt = usePrompt(waiting ? command.command_id : null);
  if (!command) return null;
  const others = (thread.current_commands?.length ?? 1) - 1;
  return (
    <div class="now-row" data-thread={thread.thread_id}>
      <NameCell thread={thread} />
      <span class="now-what">
        <code class="now-command" title={command.command}>
          {command.command}
        </code>
        <code class="now-line">{prompt || line}</code>
        {others > 0 && <span class="quiet-text">and {others} more in its other terminals</span>}
      </span>
      <span class="now-side">
        <Elapsed since={command.started_at} />
        {waiting && (
          <a
            class="button main"
            href={threadAddress(thread.thread_id, "terminals", { show: command.terminal_id })}
          >
            Open terminal
          </a>
        )}
        <StopButton command={command.command_id} of={thread.thread_id} />
      </span>
    </div>
  );
}

/** A thread that runs nothing: its last command, how it ended, and when. */
function RestingRow({ thread }: { thread: Thread }) {
  const command = thread.last_command;
  return (
    <div class="now-row" data-thread={thread.thread_id}>
      <NameCell thread={thread} />
      <span class="now-what">
        {command ? (
          <code class="now-command" title={command.command}>
            {command.command}
          </code>
        ) : (
          <span class="quiet-text">No command yet</span>
        )}
      </span>
      <span class="now-side">
        {command && commandFailed(command) && <Badge tone="bad">{failureText(command)}</Badge>}
        <Ago time={thread.updated_at} />
      </span>
    </div>
  );
}
