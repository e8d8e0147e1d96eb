/**
 * What the server says happened, from `/api/events`. One connection a page; everyone who cares listens here.
 *
 * An event only says that something changed; who shows it asks for how it is. After a break in the connection that
 * could not be made up for, anything may have changed, and listeners are told so.
 */

import { Events } from "../lib/sse.ts";
import type { InstanceMetrics } from "./types.ts";

export interface Happening {
  /** The event's type, e.g. `session_expired`; `*` for "anything". */
  name: string;
  thread: string | null;
  terminal: string | null;
  lease: string | null;
  project: string | null;
}

/** What an instance uses, told every few seconds while a terminal on it is looked at. */
export interface Measurement extends InstanceMetrics {
  lease_id: string;
  instance_id: string;
}

type Listener = (what: Happening) => void;

const ANYTHING: Happening = { name: "*", thread: null, terminal: null, lease: null, project: null };
const AGAIN_MS = 1000;
const AT_MOST_MS = 15_000;

/** Reads an event. */
export function understand(name: string, json: string): Happening {
  let data: Record<string, unknown> = {};
  try {
    const said: unknown = JSON.parse(json);
    if (typeof said === "object" && said !== null) data = said as Record<string, unknown>;
  } catch {
    // An event without readable data still says that its noun changed.
  }
  const id = (key: string): string | null => (typeof data[key] === "string" ? data[key] : null);
  return {
    name,
    thread: id("thread_id"),
    terminal: id("terminal_id"),
    lease: id("lease_id"),
    project: id("project_id"),
  };
}

const listeners = new Set<Listener>();
let stop: AbortController | null = null;
let idle: ReturnType<typeof setTimeout> | null = null;

function tell(what: Happening): void {
  for (const listener of [...listeners]) listener(what);
}

const measuring = new Set<(what: Measurement) => void>();

function tellMeasured(json: string): void {
  let said: Measurement;
  try {
    said = JSON.parse(json) as Measurement;
  } catch {
    return;
  }
  for (const listener of [...measuring]) listener(said);
}

/** Calls `listener` for every measurement while the page listens to events. */
export function onMeasured(listener: (what: Measurement) => void): () => void {
  measuring.add(listener);
  return () => void measuring.delete(listener);
}

/** Reads one connection to its end; the id of the last event. */
async function read(last: string | null, signal: AbortSignal, opened: () => void): Promise<string | null> {
  const headers: Record<string, string> = { accept: "text/event-stream" };
  if (last !== null) headers["last-event-id"] = last;
  const response = await fetch("/api/events", {
    headers,
    signal,
    cache: "no-store",
    credentials: "same-origin",
  });
  if (!response.ok || !response.body) return last;
  opened();
  // Events before the first one we know the number of cannot be asked for again.
  if (last === null) tell(ANYTHING);
  const events = new Events();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return last;
      for (const event of events.feed(value)) {
        last = event.id ?? last;
        if (event.name === "gap") tell(ANYTHING);
        else if (event.name === "instance_measured") tellMeasured(event.data);
        else if (event.name !== "notice") tell(understand(event.name, event.data));
      }
    }
  } catch {
    return last;
  }
}

async function listen(signal: AbortSignal): Promise<void> {
  let last: string | null = null;
  let wait = AGAIN_MS;
  while (!signal.aborted) {
    const before: string | null = last;
    last = await read(last, signal, () => (wait = AGAIN_MS)).catch(() => before);
    if (signal.aborted) return;
    await new Promise((resolve) => setTimeout(resolve, wait));
    wait = Math.min(AT_MOST_MS, wait * 2);
  }
}

/** Calls `listener` for everything that happens, until the returned function is called. */
export function onHappening(listener: Listener): () => void {
  listeners.add(listener);
  if (idle) clearTimeout(idle);
  idle = null;
  if (!stop) {
    stop = new AbortController();
    void listen(stop.signal);
  }
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0) return;
    // A view that replaces another listens a moment later.
    idle = setTimeout(() => {
      stop?.abort();
      stop = null;
    }, 1000);
  };
}
