/** Messages and commands of a thread in order of time, with a search. */

import { useEffect, useState } from "preact/hooks";
import { getBytes, path } from "../api/client.ts";
import type { Command } from "../api/types.ts";
import { plainOf } from "../lib/ansi.ts";
import { type Filter, matches } from "../lib/timeline.ts";
import { Button, Empty, Failure } from "../ui/parts.tsx";
import {
  Entries,
  endOf,
  Followed,
  MessageBox,
  type TimelineSource,
  useTimeline,
} from "./timeline-entries.tsx";

const MAX_COMMANDS = 200;
/** In the side panel. */
const RECENT_COMMANDS = 50;

export function TimelineView({ wanted, ...source }: TimelineSource & { wanted: string | null }) {
  const { thread, terminals } = source;
  const [filter, setFilter] = useState<Filter>({ text: "", only: "all" });
  const { messages, commands, entries } = useTimeline(source, MAX_COMMANDS, wanted);
  const outputs = useOutputs(commands.value ?? [], filter.text.trim());
  const shown = entries.filter((entry) =>
    matches(
      entry.kind === "command"
        ? { ...entry, command: { ...entry.command, ...outputs.get(entry.key) } }
        : entry,
      filter,
    ),
  );
  const count = entries.length;

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
      <Followed label="Timeline" last={endOf(shown)} start={wanted === null ? "end" : "entry"}>
        {commands.value && count === 0 && <NothingYet thread={thread} />}
        {count > 0 && shown.length === 0 && (
          <Empty title="Nothing matches." command={`stead history ${thread}`}>
            <p>The commands in full are listed by:</p>
            <Button onClick={() => setFilter({ text: "", only: "all" })}>Show everything</Button>
          </Empty>
        )}
        <Entries entries={shown} thread={thread} terminals={terminals} wanted={wanted} />
      </Followed>
      <MessageBox thread={thread} onSent={messages.refresh} />
    </div>
  );
}

/** The timeline beside a terminal. */
export function TimelinePanel(source: TimelineSource) {
  const { thread, terminals } = source;
  const { messages, commands, entries } = useTimeline(source, RECENT_COMMANDS);
  return (
    <div class="timeline-panel">
      {commands.error !== undefined && <Failure error={commands.error} retry={commands.refresh} />}
      <Followed label="Timeline" last={endOf(entries)}>
        {commands.value && entries.length === 0 && <NothingYet thread={thread} />}
        <Entries entries={entries} thread={thread} terminals={terminals} />
      </Followed>
      <MessageBox thread={thread} onSent={messages.refresh} />
    </div>
  );
}

function NothingYet({ thread }: { thread: string }) {
  return (
    <Empty title="No messages or commands yet." command={`stead exec --thread ${thread} -- 'echo hello'`}>
      <p>Run a command in the box below the terminal, or:</p>
    </Empty>
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
