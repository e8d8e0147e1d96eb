/** One thread: its terminals and history, and the status panel beside them. */

import { useEffect, useState } from "preact/hooks";
import { get, isProblem, list, path, send } from "../api/client.ts";
import type { AppEvent } from "../api/events.ts";
import { type Resource, useResource } from "../api/resource.ts";
import type { Lease, Terminal, Thread } from "../api/types.ts";
import { useActivity } from "../lib/activity.ts";
import { prefer, usePreferences } from "../lib/preferences.ts";
import { go, type ThreadTab, threadAddress } from "../lib/router.ts";
import { TerminalView } from "../terminal/view.tsx";
import { ask, attempt, toast } from "../ui/dialogs.tsx";
import { Icon } from "../ui/icons.tsx";
import { Badge, Button, Empty, Failure, Menu, toneOf } from "../ui/parts.tsx";
import { ExecBox } from "./exec.tsx";
import { ReplayView } from "./replay.tsx";
import { ShareDialog } from "./share.tsx";
import { StatusPanel } from "./status.tsx";
import { statusText } from "./threads.tsx";
import { TimelineView } from "./timeline.tsx";
import { VersionsView } from "./versions.tsx";

const TABS: { tab: ThreadTab; label: string }[] = [
  { tab: "terminals", label: "Terminals" },
  { tab: "timeline", label: "Timeline" },
  { tab: "versions", label: "Versions" },
  { tab: "replay", label: "Replay" },
];

/** The terminals of a thread, the default one first. */
export function useTerminals(thread: string) {
  return useResource<Terminal[]>(
    `terminals ${thread}`,
    () => list<Terminal>(path("api", "threads", thread, "terminals")),
    (event) => event.name.startsWith("terminal") && (event.thread === null || event.thread === thread),
  );
}

/** A short name for a terminal among its thread's. */
export const terminalLabel = (terminal: Terminal, index: number): string =>
  terminal.title ||
  (terminal.cmd?.length ? terminal.cmd.join(" ") : index === 0 ? "main" : `terminal ${index + 1}`);

interface Props {
  thread: string;
  tab: ThreadTab;
  query: URLSearchParams;
}

export function ThreadView({ thread, tab, query }: Props) {
  const here = path("api", "threads", thread);
  const { panel } = usePreferences();
  const lease: Resource<Lease> = useResource<Lease>(
    `lease ${thread}`,
    () => get(`${here}/lease`),
    (event) => isAffected(event),
  );
  const terminals = useTerminals(thread);
  /** Whether an event changes this thread, its lease or one of its terminals. */
  const isAffected = (event: AppEvent): boolean =>
    event.thread === thread ||
    (event.lease !== null && event.lease === lease.value?.lease_id) ||
    (event.terminal !== null &&
      (terminals.value?.some((one) => one.terminal_id === event.terminal) ?? false));
  const about = useResource<Thread>(`thread ${thread}`, () => get(here), isAffected);

  if (isProblem(about.error, 404)) {
    return (
      <main class="page" id="main" tabIndex={-1}>
        <Empty title="Thread not found.">
          <p>
            <code>{thread}</code>
          </p>
          <Button
            tone="main"
            onClick={() =>
              attempt("Couldn't create the thread.", async () => {
                await send("PUT", here, {});
                about.refresh();
                terminals.refresh();
                lease.refresh();
              })
            }
          >
            Create this thread
          </Button>
        </Empty>
      </main>
    );
  }

  const state = lease.value?.instance?.state;
  const paused = state === "paused";
  const resume = (): Promise<unknown> =>
    attempt("Couldn't resume the thread.", () => send("POST", `${here}/resume`), "Resumed.");
  const destroy = async (): Promise<void> => {
    const yes = await ask({
      title: "Destroy this thread?",
      text: "This kills its processes and deletes its terminals and, unless it is shared, its sandbox.",
      action: "Destroy",
      danger: true,
      type: thread,
    });
    if (!yes) return;
    const done = await attempt(
      "Couldn't destroy the thread.",
      async () => {
        await send("DELETE", here);
        return true;
      },
      "Thread destroyed.",
    );
    if (done) go("/ui/threads");
  };

  return (
    <main class={`thread${panel ? " with-panel" : ""}`} id="main" tabIndex={-1}>
      <header class="thread-head">
        <div class="thread-title">
          <h1 title={thread}>{thread}</h1>
          <ThreadBadge sandbox={about.value?.sandbox?.status} instance={state} />
          <span class="tools">
            <Button
              aria-label={paused ? "Resume" : "Pause"}
              onClick={() =>
                paused
                  ? resume()
                  : attempt("Couldn't pause the thread.", () => send("POST", `${here}/pause`), "Paused.")
              }
            >
              <Icon name={paused ? "play" : "pause"} />
              <span class="wide-only">{paused ? "Resume" : "Pause"}</span>
            </Button>
            <Menu
              label="More thread actions"
              items={[
                {
                  label: "Keep alive",
                  run: () =>
                    attempt(
                      "Couldn't reset the session timer.",
                      () => send("POST", `${here}/session/touch`),
                      "Session timer reset.",
                    ),
                },
                { label: "Close session", run: () => closeSession(here) },
                { label: "Destroy thread…", tone: "danger", run: destroy },
              ]}
            >
              <Icon name="more" />
            </Menu>
            <button
              type="button"
              class="button ghost"
              aria-pressed={panel}
              aria-label="Status panel"
              title="Status panel"
              onClick={() => prefer({ panel: !panel })}
            >
              <Icon name="panel" />
            </button>
          </span>
        </div>
        <nav class="tabs" aria-label="Thread views">
          {TABS.map((one) => (
            <a
              key={one.tab}
              href={threadAddress(thread, one.tab)}
              aria-current={one.tab === tab ? "page" : undefined}
            >
              {one.label}
            </a>
          ))}
        </nav>
      </header>
      <div class="thread-body">
        {about.error !== undefined && <Failure error={about.error} retry={about.refresh} />}
        {tab === "terminals" && (
          <Terminals
            thread={thread}
            terminals={terminals}
            wanted={query.get("show")}
            paused={paused}
            resume={resume}
          />
        )}
        {tab === "timeline" && (
          <TimelineView thread={thread} isAffected={isAffected} terminals={terminals.value ?? []} />
        )}
        {tab === "versions" && (
          <VersionsView
            key={thread}
            isAffected={isAffected}
            thread={thread}
            terminals={terminals.value ?? []}
          />
        )}
        {tab === "replay" && (
          <ReplayView
            terminals={terminals.value ?? []}
            terminal={query.get("terminal")}
            offset={query.has("offset") ? Number(query.get("offset")) : null}
            at={query.get("at")}
          />
        )}
      </div>
      {panel && (
        <StatusPanel
          thread={thread}
          lease={lease}
          terminals={terminals.value ?? []}
          isAffected={isAffected}
        />
      )}
    </main>
  );
}

/** What the thread does while its instance runs, else the state of the instance. */
function ThreadBadge({ sandbox, instance }: { sandbox: string | undefined; instance: string | undefined }) {
  const activity = useActivity();
  const status = instance ?? sandbox;
  if (status === undefined) return null;
  if (status !== "running") return <Badge tone={toneOf(status)}>{statusText(status)}</Badge>;
  switch (activity) {
    case "running":
      return <Badge tone="busy">running</Badge>;
    case "waiting":
      return <Badge tone="warn">waiting for input</Badge>;
    case "failed":
      return <Badge tone="bad">failed</Badge>;
    case "idle":
      return <Badge tone="quiet">idle</Badge>;
  }
}

/** Creates a terminal and shows it. */
export async function newTerminal(thread: string): Promise<void> {
  const made = await attempt("Couldn't create a terminal.", () =>
    send<Terminal>("POST", path("api", "threads", thread, "terminals"), {}),
  );
  if (made) go(threadAddress(thread, "terminals", { show: made.terminal_id }));
}

async function closeSession(here: string): Promise<void> {
  const yes = await ask({
    title: "Close the session?",
    text: "The shell's state is kept. The next command opens a new session.",
    action: "Close",
  });
  if (yes)
    await attempt(
      "Couldn't close the session.",
      () => send("POST", `${here}/session/close`),
      "Session closed.",
    );
}

interface TerminalsProps {
  thread: string;
  terminals: Resource<Terminal[]>;
  /** The terminal in the address. */
  wanted: string | null;
  paused: boolean;
  resume: () => Promise<unknown>;
}

function Terminals({ thread, terminals, wanted, paused, resume }: TerminalsProps) {
  const all = terminals.value ?? [];
  const [shown, setShown] = useState<string[]>([]);
  const [sharing, setSharing] = useState<{ terminal: string; label: string } | null>(null);
  const ids = all.map((terminal) => terminal.terminal_id).join(" ");
  useEffect(() => {
    // A deleted terminal leaves its pane; one is always shown.
    setShown((before) => {
      const there = before.filter((id) => all.some((terminal) => terminal.terminal_id === id));
      return there.length > 0 ? there : all.slice(0, 1).map((terminal) => terminal.terminal_id);
    });
  }, [ids]);
  const there = wanted !== null && all.some((terminal) => terminal.terminal_id === wanted);
  useEffect(() => {
    if (there) setShown([wanted]);
  }, [wanted, there]);

  const open = (): Promise<void> => newTerminal(thread);
  const end = async (terminal: Terminal, label: string): Promise<void> => {
    const yes = await ask({
      title: `Delete terminal ${label}?`,
      text: "Its processes are killed and its state is deleted.",
      action: "Delete",
      danger: true,
    });
    if (!yes) return;
    await attempt(
      "Couldn't delete the terminal.",
      () => send("DELETE", path("api", "terminals", terminal.terminal_id)),
      "Terminal deleted.",
    );
    terminals.refresh();
  };

  if (terminals.error !== undefined && all.length === 0)
    return <Failure error={terminals.error} retry={terminals.refresh} />;
  if (terminals.value && all.length === 0) {
    return (
      <Empty title="No terminals yet.">
        <Button tone="main" onClick={open}>
          New terminal
        </Button>
      </Empty>
    );
  }
  const panes = shown.flatMap((id) => {
    const index = all.findIndex((terminal) => terminal.terminal_id === id);
    return index < 0 ? [] : [{ terminal: all[index]!, label: terminalLabel(all[index]!, index) }];
  });
  return (
    <div class="terminals">
      <div class="terminal-tabs" role="group" aria-label="Terminals">
        {all.map((terminal, index) => {
          const label = terminalLabel(terminal, index);
          const on = shown.includes(terminal.terminal_id);
          return (
            <span key={terminal.terminal_id} class={`terminal-tab${on ? " on" : ""}`}>
              <button
                type="button"
                aria-pressed={on}
                onClick={() => setShown([terminal.terminal_id])}
                title={terminal.terminal_id}
              >
                {label}
              </button>
              <button
                type="button"
                class="beside"
                aria-label={on ? `Hide ${label}` : `Show ${label} side by side`}
                title={on ? "Hide" : "Show side by side"}
                disabled={on && shown.length === 1}
                onClick={() =>
                  setShown((before) => {
                    const others = before.filter((id) => id !== terminal.terminal_id);
                    return on ? others : [...others, terminal.terminal_id];
                  })
                }
              >
                <Icon name={on ? "close" : "split"} />
              </button>
            </span>
          );
        })}
        <button
          type="button"
          class="button ghost"
          aria-label="New terminal"
          title="New terminal"
          onClick={() => void open()}
        >
          <Icon name="plus" />
        </button>
        {all.length > 1 && (
          <Menu
            label="Delete a terminal"
            items={all.slice(1).map((terminal, index) => {
              const label = terminalLabel(terminal, index + 1);
              return { label: `Delete ${label}…`, tone: "danger" as const, run: () => end(terminal, label) };
            })}
          >
            <Icon name="close" />
          </Menu>
        )}
      </div>
      <div class={`panes panes-${Math.min(panes.length, 4)}`}>
        {panes.map(({ terminal, label }, index) => (
          <TerminalView
            key={terminal.terminal_id}
            terminal={terminal.terminal_id}
            label={label}
            focus={index === panes.length - 1}
            paused={paused}
            resume={resume}
            onShare={() => setSharing({ terminal: terminal.terminal_id, label })}
            {...(panes.length > 1 && {
              onClose: () => setShown((before) => before.filter((id) => id !== terminal.terminal_id)),
            })}
          />
        ))}
      </div>
      {sharing && <ShareDialog {...sharing} close={() => setSharing(null)} />}
      {panes[0] && (
        <ExecBox terminal={panes[0].terminal.terminal_id} label={panes[0].label} onFailed={toast} />
      )}
    </div>
  );
}
