/**
 * What the server says happened, from `/api/events`. One connection a page; everyone who cares listens here.
 *
 * An event only says that something changed; who shows it asks for how it is. After a break in the connection,
 * anything may have changed, and listeners are told so.
 */

export interface Happening {
  /** The event's name, e.g. `session` or `lease.paused`; `*` after a break. */
  name: string;
  thread: string | null;
  terminal: string | null;
  lease: string | null;
  project: string | null;
  data: Record<string, unknown>;
}

type Listener = (what: Happening) => void;

const EVERYTHING: Happening = { name: "*", thread: null, terminal: null, lease: null, project: null, data: {} };
/** `EventSource` only hears names it was told. */
const NAMES = ["message", "thread", "session", "terminal", "command", "lease", "instance", "project", "notice", "gap"];

const listeners = new Set<Listener>();
let source: EventSource | null = null;
let missed = false;
let closing: ReturnType<typeof setTimeout> | null = null;
let retry: ReturnType<typeof setTimeout> | null = null;

/** Reads an event; ids may be at the top or inside an object of the noun's name. */
export function understand(name: string, json: string): Happening {
  let data: Record<string, unknown> = {};
  try {
    const said: unknown = JSON.parse(json);
    if (typeof said === "object" && said !== null) data = said as Record<string, unknown>;
  } catch {
    // An event without readable data still says that its noun changed.
  }
  const id = (key: string): string | null => {
    const value = data[key] ?? (data["data"] as Record<string, unknown> | undefined)?.[key];
    return typeof value === "string" ? value : null;
  };
  return {
    name,
    thread: id("thread_id"),
    terminal: id("terminal_id"),
    lease: id("lease_id"),
    project: id("project_id"),
    data,
  };
}

function tell(what: Happening): void {
  for (const listener of [...listeners]) listener(what);
}

function connect(): void {
  retry = null;
  const opened = new EventSource("/api/events");
  source = opened;
  opened.onopen = () => {
    if (missed) tell(EVERYTHING);
    missed = false;
  };
  opened.onerror = () => {
    missed = true;
    // The browser tries again by itself unless the answer was not a stream.
    if (opened.readyState !== EventSource.CLOSED || source !== opened) return;
    source = null;
    if (listeners.size > 0) retry = setTimeout(connect, 3000);
  };
  for (const name of NAMES) {
    opened.addEventListener(name, (event) => {
      if (name === "gap") tell(EVERYTHING);
      else tell(understand(name, (event as MessageEvent<string>).data));
    });
  }
}

/** Calls `listener` for everything that happens, until the returned function is called. */
export function onHappening(listener: Listener): () => void {
  listeners.add(listener);
  if (closing) clearTimeout(closing);
  closing = null;
  if (!source && !retry) connect();
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0) return;
    // A view that replaces another listens a moment later.
    closing = setTimeout(() => {
      closing = null;
      if (retry) clearTimeout(retry);
      retry = null;
      source?.close();
      source = null;
      missed = false;
    }, 1000);
  };
}
