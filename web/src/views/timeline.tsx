/** Messages and commands of a thread in order of time. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { getBytes, list, path, send } from "../api/client.ts";
import type { AppEvent } from "../api/events.ts";
import { useResource } from "../api/resource.ts";
import type { Command, Message, Terminal } from "../api/types.ts";
import { plainOf } from "../lib/ansi.ts";
import { threadAddress } from "../lib/router.ts";
import { clock, duration } from "../lib/time.ts";
import { beganAt, contentText, type Filter, matches, outcome, timeline } from "../lib/timeline.ts";
import { attempt } from "../ui/dialogs.tsx";
import { Badge, Empty, Failure, useNow } from "../ui/parts.tsx";
import { Output } from "./output.tsx";
import { Variable } from "./status.tsx";
import { terminalLabel } from "./terminals.tsx";

const MAX_COMMANDS = 200;

interface Props {
  thread: string;
  terminals: Terminal[];
  isAffected: (event: AppEvent) => boolean;
}

export function TimelineView({ thread, terminals, isAffected }: Props) {
  const [filter, setFilter] = useState<Filter>({ text: "", only: "all" });
  const ids = terminals.map((terminal) => terminal.terminal_id);
  const messages = useResource<Message[]>(
    `messages ${thread}`,
    () => list<Message>(`${path("api", "threads", thread, "messages")}?limit=1000`, 1000),
    isAffected,
  );
  const commands = useResource<Command[]>(
    ids.length > 0 ? `commands ${ids.join(" ")}` : null,
    async () => {
      const each = await Promise.all(
        ids.map(async (id) => {
          const found = await list<Command>(
            `${path("api", "terminals", id, "commands")}?limit=${MAX_COMMANDS}`,
            MAX_COMMANDS,
          );
          return found.map((command) => ({ ...command, terminal_id: id }));
        }),
      );
      return each.flat();
    },
    isAffected,
  );
  const entries = useMemo(
    () => timeline(messages.value ?? [], commands.value ?? []),
    [messages.value, commands.value],
  );
  const outputs = useOutputs(commands.value ?? [], filter.text.trim());
  const shown = entries.filter((entry) =>
    matches(
      entry.kind === "command"
        ? { ...entry, command: { ...entry.command, ...outputs.get(entry.key) } }
        : entry,
      filter,
    ),
  );
  const labels = new Map(
    terminals.map((terminal, index) => [terminal.terminal_id, terminalLabel(terminal, index)]),
  );
  const end = useRef<HTMLDivElement>(null);
  const count = entries.length;
  useEffect(() => end.current?.scrollIntoView({ block: "end" }), [count > 0]);

  return (
    <div class="timeline-view">
      <div class="bar">
        <input
          type="search"
          placeholder="Search commands, output, messages"
          aria-label="Search the timeline"
          value={filter.text}
          onInput={(event) => setFilter({ ...filter, text: event.currentTarget.value })}
        />
        <label class="inline">
          <span>Show</span>
          <select
            value={filter.only}
            onChange={(event) => setFilter({ ...filter, only: event.currentTarget.value as Filter["only"] })}
          >
            <option value="all">everything</option>
            <option value="commands">commands</option>
            <option value="failed">failed commands</option>
            <option value="messages">messages</option>
          </select>
        </label>
        <span class="quiet-text" role="status">
          {shown.length === count ? `${count}` : `${shown.length} of ${count}`}
        </span>
      </div>
      {commands.error !== undefined && <Failure error={commands.error} retry={commands.refresh} />}
      <div class="timeline-scroll" role="region" tabIndex={0} aria-label="Timeline">
        {commands.value && count === 0 && <Empty title="No messages or commands yet." />}
        <ol class="timeline">
          {shown.map((entry) =>
            entry.kind === "message" ? (
              <MessageEntry key={entry.key} message={entry.message} />
            ) : (
              <CommandEntry
                key={entry.key}
                command={entry.command}
                thread={thread}
                label={terminals.length > 1 ? labels.get(entry.command.terminal_id) : undefined}
              />
            ),
          )}
        </ol>
        <div ref={end} />
      </div>
      <MessageBox thread={thread} onSent={messages.refresh} />
    </div>
  );
}

/** How much of each output is searched. */
const SEARCHED_BYTES = 64 << 10;
const MAX_SEARCHED = 500;

type Texts = { stdout?: string; stderr?: string };

/** The beginning of each output, fetched one by one while there is something to search for. */
function useOutputs(commands: Command[], wanted: string): Map<string, Texts> {
  const [found, setFound] = useState<Map<string, Texts>>(new Map());
  useEffect(() => {
    if (wanted.length < 2) return;
    let here = true;
    void (async () => {
      for (const command of commands.slice(0, MAX_SEARCHED)) {
        if (!here) return;
        if (found.has(command.command_id) || command.stdout_bytes + command.stderr_bytes === 0) continue;
        const texts: Texts = {};
        for (const stream of ["stdout", "stderr"] as const) {
          if (command[`${stream}_bytes`] === 0) continue;
          const output = path("api", "commands", command.command_id, "output");
          const read = await getBytes(`${output}?stream=${stream}&limit=${SEARCHED_BYTES}`).catch(() => null);
          if (read) texts[stream] = plainOf(new TextDecoder().decode(read.bytes));
        }
        if (here) setFound((before) => new Map(before).set(command.command_id, texts));
      }
    })();
    return () => {
      here = false;
    };
  }, [commands, wanted.length >= 2]);
  return found;
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
}: {
  command: Command;
  thread: string;
  label: string | undefined;
}) {
  const now = useNow(60_000);
  const [open, setOpen] = useState(false);
  const ended = outcome(command);
  const person = command.source === "person" || command.source === "typed";
  return (
    <li class={`entry command ${ended.tone}`}>
      <details onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>
          <code class="command-text">{command.command}</code>
          <span class="entry-facts">
            <Badge tone={ended.tone}>{ended.text}</Badge>
            {command.duration_ms !== null && command.duration_ms !== undefined && (
              <span>{duration(command.duration_ms)}</span>
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
                <a href={threadAddress(thread, "versions")}>State version {command.version}</a>
              )}
              <code class="quiet-text">{command.command_id}</code>
            </p>
          </div>
        )}
      </details>
    </li>
  );
}

/** The replay at the end of a command. */
function replayAddress(thread: string, command: Command): string {
  const { terminal_id: terminal, offset_end: offset } = command;
  const at = command.finished_at ?? beganAt(command);
  return threadAddress(thread, "replay", {
    terminal,
    at,
    ...(typeof offset === "number" && { offset: String(offset) }),
  });
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

function MessageBox({ thread, onSent }: { thread: string; onSent: () => void }) {
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
