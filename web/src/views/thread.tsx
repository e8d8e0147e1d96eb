/** One thread: its terminals and history, and the panel beside them. */

import { useState } from "preact/hooks";
import { get, isProblem, path, send } from "../api/client.ts";
import type { AppEvent } from "../api/events.ts";
import { type Resource, useResource } from "../api/resource.ts";
import type { Handoff, LastCommand, Lease, Thread } from "../api/types.ts";
import { mostUrgent, useActivity } from "../lib/activity.ts";
import { prefer, usePreferences } from "../lib/preferences.ts";
import { go, type ThreadTab, threadAddress } from "../lib/router.ts";
import { threadActivity, threadState } from "../lib/thread-state.ts";
import { ask, attempt } from "../ui/dialogs.tsx";
import { Icon } from "../ui/icons.tsx";
import { Loaded } from "../ui/loaded.tsx";
import { Badge, Button, Empty, Failure, Menu, toneOf } from "../ui/parts.tsx";
import { ThreadName } from "../ui/thread-name.tsx";
import { HandoffBanner } from "./handoff.tsx";
import { ReplayView } from "./replay.tsx";
import { SidePanel } from "./side-panel.tsx";
import { Terminals, useTerminals } from "./terminals.tsx";
import { statusText } from "./threads.tsx";
import { TimelineView } from "./timeline.tsx";
import { VersionsView } from "./versions.tsx";

const NO_COMMANDS: readonly LastCommand[] = [];

const TABS: { tab: ThreadTab; label: string }[] = [
  { tab: "terminals", label: "Terminals" },
  { tab: "timeline", label: "Timeline" },
  { tab: "files", label: "Files" },
  { tab: "versions", label: "Versions" },
  { tab: "replay", label: "Replay" },
];

interface Props {
  thread: string;
  tab: ThreadTab;
  query: URLSearchParams;
  /** Its open hand-offs. */
  handoffs: Handoff[];
}

export function ThreadView({ thread, tab, query, handoffs }: Props) {
  const here = path("api", "threads", thread);
  const { panel } = usePreferences();
  const lease: Resource<Lease> = useResource<Lease>(
    `lease ${thread}`,
    () => get(`${here}/lease`),
    (event) => isAffected(event),
  );
  const terminals = useTerminals(thread);
  const [selected, setSelected] = useState<string | null>(null);
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
        <Empty title="Thread not found." command={`stead attach ${thread} --create`}>
          <p>
            There is no thread <code>{thread}</code>. It may have been destroyed. Create it here, or run:
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

  const current = about.value?.current_commands ?? NO_COMMANDS;
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
          <h1 title={thread}>
            <ThreadName thread={thread} />
          </h1>
          <ThreadBadge sandbox={about.value?.sandbox?.status} instance={state} thread={about.value} />
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
              aria-label="Side panel"
              title="Side panel"
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
        <HandoffBanner handoffs={handoffs} />
        {about.error !== undefined && <Failure error={about.error} retry={about.refresh} />}
        {tab === "terminals" && (
          <Terminals
            thread={thread}
            terminals={terminals}
            wanted={query.get("show")}
            selected={selected}
            onSelect={setSelected}
            current={current}
            paused={paused}
            resume={resume}
          />
        )}
        {tab === "timeline" && (
          <TimelineView
            key={query.get("command")}
            wanted={query.get("command")}
            thread={thread}
            isAffected={isAffected}
            terminals={terminals.value ?? []}
            current={current}
          />
        )}
        {tab === "files" && (
          <Loaded load={() => import("./files.tsx")} props={{ thread, path: query.get("path") }} />
        )}
        {tab === "versions" && (
          <VersionsView
            key={thread}
            isAffected={isAffected}
            thread={thread}
            shown={query.get("terminal")}
            version={query.has("version") ? Number(query.get("version")) : null}
            terminals={terminals.value ?? []}
          />
        )}
        {tab === "replay" && (
          <ReplayView
            thread={thread}
            terminals={terminals.value ?? []}
            terminal={query.get("terminal")}
            offset={query.has("offset") ? Number(query.get("offset")) : null}
            at={query.get("at")}
          />
        )}
      </div>
      {panel && (
        <SidePanel
          thread={thread}
          selected={tab === "terminals" ? selected : null}
          lease={lease}
          terminals={terminals.value ?? []}
          isAffected={isAffected}
          current={current}
          statusOnly={tab !== "terminals"}
        />
      )}
    </main>
  );
}

/** What the thread does while its instance runs, else the state of the instance. */
interface BadgeProps {
  sandbox: string | undefined;
  instance: string | undefined;
  thread: Thread | undefined;
}

function ThreadBadge({ sandbox, instance, thread }: BadgeProps) {
  // Those that are not on the page count, too.
  const activity = mostUrgent([useActivity(), thread ? threadActivity(thread) : "idle"]);
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
    case "idle": {
      // Terminals report what they do only while they are on the page.
      const { tone, text } = thread ? threadState(thread) : { tone: "quiet" as const, text: "idle" };
      return <Badge tone={tone}>{text}</Badge>;
    }
  }
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
