/** The entries of a timeline: messages and commands, in a list that follows its end. */

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, list, path, send } from "../api/client.ts";
import type { AppEvent } from "../api/events.ts";
import { useRecentHandoffs } from "../api/handoffs.ts";
import { type Resource, useResource } from "../api/resource.ts";
import type { Command, Handoff, LastCommand, Message, Terminal } from "../api/types.ts";
import { answerText, kindText, resultOf } from "../lib/handoff.ts";
import { threadAddress } from "../lib/router.ts";
import { clock, duration } from "../lib/time.ts";
import {
  beganAt,
  contentText,
  type Entry,
  isUnfinished,
  outcome,
  replayAddress,
  timeline,
  withCurrent,
} from "../lib/timeline.ts";
import { attempt } from "../ui/dialogs.tsx";
import { Badge, Button, Elapsed, useNow } from "../ui/parts.tsx";
import { Output } from "./output.tsx";
import { Variable } from "./status.tsx";
import { terminalLabel } from "./terminals.tsx";

const MAX_MESSAGES = 1000;

export interface TimelineSource {
  thread: string;
  terminals: Terminal[];
  isAffected: (event: AppEvent) => boolean;
  /** The command that runs in the default terminal. */
  current: readonly LastCommand[];
}

export interface Timeline {
  messages: Resource<Message[]>;
  commands: Resource<Command[]>;
  entries: Entry[];
}

/** The messages of a thread and the latest `max` commands of each of its terminals. */
export function useTimeline(source: TimelineSource, max: number, wanted: string | null = null): Timeline {
  const { thread, terminals, isAffected, current } = source;
  const ids = terminals.map((terminal) => terminal.terminal_id);
  const messages = useResource<Message[]>(
    `messages ${thread}`,
    () => list<Message>(`${path("api", "threads", thread, "messages")}?limit=${MAX_MESSAGES}`, MAX_MESSAGES),
    isAffected,
  );
  const commands = useResource<Command[]>(
    ids.length > 0 ? `commands ${ids.join(" ")} ${wanted ?? ""}` : null,
    async () => {
      const each = await Promise.all(
        ids.map(async (id) => {
          const address = `${path("api", "terminals", id, "commands")}?limit=${max}`;
          const found = await list<Command>(address, max);
          return found.map((command) => ({ ...command, terminal_id: id }));
        }),
      );
      const all = each.flat();
      if (wanted === null || all.some((command) => command.command_id === wanted)) return all;
      // An older command, or one of a terminal that is gone.
      const older = await get<Command>(path("api", "commands", wanted)).catch(() => null);
      return older ? [...all, older] : all;
    },
    isAffected,
  );
  const handoffs = useRecentHandoffs(thread);
  const entries = useMemo(
    () => timeline(messages.value ?? [], withCurrent(commands.value ?? [], current), handoffs.value ?? []),
    [messages.value, commands.value, handoffs.value, current],
  );
  return { messages, commands, entries };
}

/** How close to its end a list counts as being there, in pixels. */
const NEAR_END_PX = 40;

/** A region that scrolls to what is added at its end, unless the person has scrolled away from there. */
export function Followed({
  label,
  last,
  start = "end",
  children,
}: {
  label: string;
  last: string;
  /** `entry` if an entry scrolls itself into view. */
  start?: "end" | "entry";
  children: ComponentChildren;
}) {
  const box = useRef<HTMLDivElement>(null);
  const [following, setFollowing] = useState(start === "end");
  const toEnd = (): void => {
    if (box.current) box.current.scrollTop = box.current.scrollHeight;
  };
  useLayoutEffect(() => {
    if (following) toEnd();
  }, [last, following]);
  return (
    <div class="followed">
      <div
        ref={box}
        class="timeline-scroll"
        role="region"
        tabIndex={0}
        aria-label={label}
        onScroll={({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) =>
          setFollowing(scrollHeight - scrollTop - clientHeight < NEAR_END_PX)
        }
      >
        {children}
      </div>
      {!following && (
        <Button class="to-end" onClick={() => setFollowing(true)}>
          Jump to latest
        </Button>
      )}
    </div>
  );
}

/** A text that changes when a list of entries has to follow its end. */
export const endOf = (entries: readonly Entry[]): string => {
  const last = entries.at(-1);
  return last === undefined ? "" : `${entries.length} ${last.key}`;
};

interface EntriesProps {
  entries: Entry[];
  thread: string;
  terminals: Terminal[];
  /** The command that is shown with its output. */
  wanted?: string | null;
}

export function Entries({ entries, thread, terminals, wanted = null }: EntriesProps) {
  const labels = new Map(
    terminals.map((terminal, index) => [terminal.terminal_id, terminalLabel(terminal, index)]),
  );
  return (
    <ol class="timeline">
      {entries.map((entry) => (
        <EntryItem key={entry.key} entry={entry} thread={thread} labels={labels} wanted={wanted} />
      ))}
    </ol>
  );
}

interface EntryProps {
  entry: Entry;
  thread: string;
  /** The names of the thread's terminals. */
  labels: ReadonlyMap<string, string>;
  wanted: string | null;
}

function EntryItem({ entry, thread, labels, wanted }: EntryProps) {
  switch (entry.kind) {
    case "message":
      return <MessageEntry message={entry.message} />;
    case "handoff":
      return <HandoffEntry handoff={entry.handoff} />;
    case "command": {
      const label = labels.size > 1 ? labels.get(entry.command.terminal_id) : undefined;
      const isWanted = entry.command.command_id === wanted;
      return <CommandEntry command={entry.command} thread={thread} label={label} isWanted={isWanted} />;
    }
  }
}

/** A request to the person, and how it was answered. */
function HandoffEntry({ handoff }: { handoff: Handoff }) {
  const now = useNow(60_000);
  const { text, tone } = resultOf(handoff);
  const answer = answerText(handoff);
  return (
    <li class="entry asked">
      <div class="entry-head">
        <strong>{kindText(handoff.kind)}</strong>
        <Badge tone={tone}>{text}</Badge>
        <span class="quiet-text">{clock(handoff.created_at, now)}</span>
      </div>
      <p class="content">{handoff.reason}</p>
      {answer !== "" && <p class="content answer">{answer}</p>}
    </li>
  );
}

function MessageEntry({ message }: { message: Message }) {
  const now = useNow(60_000);
  return (
    <li class={`entry message ${message.role === "user" ? "from-person" : "from-agent"}`}>
      <div class="entry-head">
        <strong>{message.role}</strong>
        <span class="quiet-text">{clock(message.at, now)}</span>
      </div>
      <p class="content">{contentText(message.content)}</p>
    </li>
  );
}

function CommandEntry({
  command,
  thread,
  label,
  isWanted,
}: {
  command: Command;
  thread: string;
  label: string | undefined;
  /** Whether the entry is opened and scrolled into view. */
  isWanted: boolean;
}) {
  const now = useNow(60_000);
  const [open, setOpen] = useState(isWanted);
  const item = useRef<HTMLLIElement>(null);
  useLayoutEffect(() => {
    if (isWanted) item.current?.scrollIntoView({ block: "start" });
  }, [isWanted]);
  const ended = outcome(command);
  const person = command.source === "person" || command.source === "typed";
  return (
    <li ref={item} class={`entry command ${ended.tone}${isWanted ? " wanted" : ""}`}>
      <details open={isWanted} onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>
          <code class="command-text">{command.command}</code>
          <span class="entry-facts">
            <Badge tone={ended.tone}>{ended.text}</Badge>
            {isUnfinished(command) ? (
              <Elapsed since={beganAt(command)} />
            ) : (
              typeof command.duration_ms === "number" && <span>{duration(command.duration_ms)}</span>
            )}
            {command.source && <span>{person ? "typed" : "by an agent"}</span>}
            {label && <span>{label}</span>}
            {command.shell_restarted && <span>shell restarted</span>}
            {command.limit_reached && <span class="soon">{command.limit_reached.replaceAll("_", " ")}</span>}
            <span>{clock(beganAt(command), now)}</span>
          </span>
        </summary>
        {open && (
          <div class="entry-body">
            <Changes command={command} />
            <Output command={command} />
            <p class="entry-links">
              {beganAt(command) && <a href={replayAddress(thread, command)}>Show the screen at this point</a>}
              {typeof command.version === "number" && (
                <a
                  href={threadAddress(thread, "versions", {
                    terminal: command.terminal_id,
                    version: String(command.version),
                  })}
                >
                  State version {command.version}
                </a>
              )}
              <code class="quiet-text">{command.command_id}</code>
            </p>
          </div>
        )}
      </details>
    </li>
  );
}

function Changes({ command }: { command: Command }) {
  const { cwd, env } = command.changes ?? {};
  const set = Object.entries(env?.set ?? {});
  const unset = env?.unset ?? [];
  if (!cwd && set.length === 0 && unset.length === 0) return null;
  return (
    <div class="changes">
      {cwd && (
        <p>
          directory <code>{cwd.from}</code> → <code>{cwd.to}</code>
        </p>
      )}
      {(set.length > 0 || unset.length > 0) && (
        <ul class="variables">
          {set.map(([name, value]) => (
            <Variable key={name} name={name} value={value} />
          ))}
          {unset.map((name) => (
            <Variable key={name} name={name} value={null} />
          ))}
        </ul>
      )}
    </div>
  );
}

export function MessageBox({ thread, onSent }: { thread: string; onSent: () => void }) {
  const [text, setText] = useState("");
  const sent = async (): Promise<void> => {
    if (text.trim() === "") return;
    const done = await attempt("Couldn't send the message.", async () => {
      await send("POST", path("api", "threads", thread, "messages"), { role: "user", content: text });
      return true;
    });
    if (!done) return;
    setText("");
    onSent();
  };
  return (
    <form
      class="exec-line message-box"
      onSubmit={(event) => {
        event.preventDefault();
        void sent();
      }}
    >
      <input
        value={text}
        placeholder="Write a message"
        aria-label="Message"
        onInput={(event) => setText(event.currentTarget.value)}
      />
      <button type="submit" class="button main" disabled={text.trim() === ""}>
        Send
      </button>
    </form>
  );
}
