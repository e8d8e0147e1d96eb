/** A search in the commands and the output of all threads. */

import { useEffect, useRef, useState } from "preact/hooks";
import { type SearchItem, search } from "../api/search.ts";
import { go, searchAddress, threadAddress } from "../lib/router.ts";
import { plural } from "../lib/time.ts";
import { outcome } from "../lib/timeline.ts";
import { Ago, Badge, Button, Empty, Failure } from "../ui/parts.tsx";
import { ThreadName } from "../ui/thread-name.tsx";
import "./search.css";

/** How long the person pauses before what is typed is searched for. */
const TYPING_PAUSE_MS = 250;

interface Found {
  items: SearchItem[];
  commands: number;
  cursor: string | null;
}

const NOTHING: Found = { items: [], commands: 0, cursor: null };

export function SearchView({ text }: { text: string }) {
  const [typed, setTyped] = useState(text);
  const [found, setFound] = useState<Found>(NOTHING);
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  /** Counts the searches, so that the answer to an earlier one is dropped. */
  const latest = useRef(0);
  const wanted = text.trim();

  const more = async (before: Found): Promise<void> => {
    const mine = ++latest.current;
    setBusy(true);
    try {
      const page = await search(wanted, before.cursor);
      if (mine !== latest.current) return;
      setError(undefined);
      setFound({
        items: [...before.items, ...page.items],
        commands: before.commands + page.commands,
        cursor: page.next_cursor,
      });
    } catch (reason) {
      if (mine === latest.current) setError(reason);
    }
    if (mine === latest.current) setBusy(false);
  };
  useEffect(() => {
    setFound(NOTHING);
    latest.current += 1;
    if (wanted !== "") void more(NOTHING);
    else setBusy(false);
  }, [wanted]);
  useEffect(() => setTyped(text), [text]);
  useEffect(() => {
    if (typed.trim() === wanted) return;
    const timer = setTimeout(() => go(searchAddress(typed.trim()), "replace"), TYPING_PAUSE_MS);
    return () => clearTimeout(timer);
  }, [typed, wanted]);

  return (
    <main class="page" id="main" tabIndex={-1}>
      <header class="page-head">
        <h1>Search</h1>
        <input
          type="search"
          // biome-ignore lint/a11y/noAutofocus: the page is opened to type here.
          autoFocus
          placeholder="Search commands and output"
          aria-label="Search commands and output of all threads"
          value={typed}
          onInput={(event) => setTyped(event.currentTarget.value)}
        />
      </header>
      {error !== undefined && <Failure error={error} retry={() => more(found)} />}
      <p class="quiet-text search-state" role="status">
        {wanted !== "" && stateOf(found, busy)}
      </p>
      {wanted === "" && (
        <Empty title="Search the commands and the output of all threads." command="stead search 'text'">
          <p>Type above, or search in a terminal:</p>
        </Empty>
      )}
      <ol class="results">
        {found.items.map((item) => (
          <Result key={item.command_id} item={item} text={wanted} />
        ))}
      </ol>
      {found.cursor !== null && !busy && <Button onClick={() => more(found)}>Search older commands</Button>}
    </main>
  );
}

function stateOf({ items, commands, cursor }: Found, busy: boolean): string {
  const count = items.length === 0 ? "No matches" : plural(items.length, "matching command");
  if (busy) return items.length === 0 ? "Searching…" : `${count}. Searching…`;
  return cursor === null
    ? `${count} in ${plural(commands, "command")} and their output.`
    : `${count} in the latest ${plural(commands, "command")} and their output.`;
}

function Result({ item, text }: { item: SearchItem; text: string }) {
  const ended = outcome({ ...item, signal: null, stdout_bytes: 0, stderr_bytes: 0, duration_ms: null });
  return (
    <li class="result">
      <a href={threadAddress(item.thread_id, "timeline", { command: item.command_id })}>
        <code class="command-text">
          <Marked line={item.command} text={text} />
        </code>
        <span class="entry-facts">
          <Badge tone={ended.tone}>{ended.text}</Badge>
          <ThreadName thread={item.thread_id} />
          <Ago time={item.created_at} />
        </span>
      </a>
      {item.lines.length > 0 && (
        <pre class="result-lines">
          {item.lines.map((line) => (
            <span key={`${line.stream} ${line.offset}`} class={line.stream}>
              <Marked line={line.text} text={text} />
              {"\n"}
            </span>
          ))}
          {item.more_lines && <span class="quiet-text">more lines match</span>}
        </pre>
      )}
    </li>
  );
}

/** A line with the places that match. */
function Marked({ line, text }: { line: string; text: string }) {
  const parts: (string | preact.JSX.Element)[] = [];
  const [lower, wanted] = [line.toLowerCase(), text.toLowerCase()];
  // Lower case may have another length; then the line is shown without marks.
  if (lower.length !== line.length) return <>{line}</>;
  let at = 0;
  for (let next = lower.indexOf(wanted); next >= 0; next = lower.indexOf(wanted, at)) {
    parts.push(line.slice(at, next), <mark key={next}>{line.slice(next, next + wanted.length)}</mark>);
    at = next + wanted.length;
  }
  return (
    <>
      {parts}
      {line.slice(at)}
    </>
  );
}
