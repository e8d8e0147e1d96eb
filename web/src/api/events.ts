/**
 * Changes on the server, from `/api/events`. A page has one connection; every view listens here.
 *
 * An event only names what changed; a view that shows it fetches the new state. After an interruption that
 * could not be replayed, listeners get an event named `*`: anything may have changed.
 */

import { EventParser } from "../lib/sse.ts";
import type { InstanceMetrics } from "./types.ts";

export interface AppEvent {
  /** The event's type, such as `session_expired`; `*` for "anything". */
  name: string;
  thread: string | null;
  terminal: string | null;
  lease: string | null;
  project: string | null;
  command: string | null;
  /** Of `command_waiting`: whether the command waits for input. */
  waiting: boolean | null;
}

/** The resources that an instance uses; sent every few seconds while one of its terminals is open. */
export interface Measurement extends InstanceMetrics {
  lease_id: string;
  instance_id: string;
}

type Listener = (event: AppEvent) => void;

const ANYTHING: AppEvent = {
  name: "*",
  thread: null,
  terminal: null,
  lease: null,
  project: null,
  command: null,
  waiting: null,
};
const MIN_RETRY_DELAY_MS = 1000;
const MAX_RETRY_DELAY_MS = 5000;
/**
 * How long the connection stays open without listeners: a view that replaces another listens a moment later.
 */
const IDLE_TIMEOUT_MS = 1000;

/** Parses an event. One with unreadable data still names what kind of thing changed. */
export function parseEvent(name: string, json: string): AppEvent {
  let data: Record<string, unknown> = {};
  try {
    const parsed: unknown = JSON.parse(json);
    if (typeof parsed === "object" && parsed !== null) data = parsed as Record<string, unknown>;
  } catch {
    data = {};
  }
  const id = (key: string): string | null => (typeof data[key] === "string" ? data[key] : null);
  return {
    name,
    thread: id("thread_id"),
    terminal: id("terminal_id"),
    lease: id("lease_id"),
    project: id("project_id"),
    command: id("command_id"),
    waiting: typeof data.waiting === "boolean" ? data.waiting : null,
  };
}

const listeners = new Set<Listener>();
const measurementListeners = new Set<(measurement: Measurement) => void>();
let connection: AbortController | null = null;
let idleTimer: ReturnType<typeof setTimeout> | null = null;

function emit(event: AppEvent): void {
  for (const listener of [...listeners]) listener(event);
}

function emitMeasurement(json: string): void {
  let measurement: Measurement;
  try {
    measurement = JSON.parse(json) as Measurement;
  } catch {
    return;
  }
  for (const listener of [...measurementListeners]) listener(measurement);
}

/** Calls `listener` for every measurement that arrives while the page listens to events. */
export function onMeasurement(listener: (measurement: Measurement) => void): () => void {
  measurementListeners.add(listener);
  return () => void measurementListeners.delete(listener);
}

/** Reads one connection to its end. Returns the id of the last event. */
async function readEvents(
  lastId: string | null,
  signal: AbortSignal,
  onOpen: () => void,
): Promise<string | null> {
  const headers: Record<string, string> = { accept: "text/event-stream" };
  if (lastId !== null) headers["last-event-id"] = lastId;
  const response = await fetch("/api/events", {
    headers,
    signal,
    cache: "no-store",
    credentials: "same-origin",
  });
  if (!response.ok || !response.body) return lastId;
  onOpen();
  // Without an id, the server cannot replay what happened before.
  if (lastId === null) emit(ANYTHING);
  const parser = new EventParser();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let id = lastId;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return id;
      for (const event of parser.feed(value)) {
        id = event.id ?? id;
        if (event.name === "gap") emit(ANYTHING);
        else if (event.name === "instance_measured") emitMeasurement(event.data);
        else if (event.name !== "notice") emit(parseEvent(event.name, event.data));
      }
    }
  } catch {
    return id;
  }
}

/** Reports a change that this page made, without waiting for the server's event. */
export const announce = (name: string): void => emit({ ...ANYTHING, name });

async function stayConnected(signal: AbortSignal): Promise<void> {
  let lastId: string | null = null;
  let delay = MIN_RETRY_DELAY_MS;
  const reset = (): void => {
    delay = MIN_RETRY_DELAY_MS;
  };
  while (!signal.aborted) {
    const before: string | null = lastId;
    lastId = await readEvents(lastId, signal, reset).catch(() => before);
    if (signal.aborted) return;
    await new Promise((resolve) => setTimeout(resolve, delay));
    delay = Math.min(MAX_RETRY_DELAY_MS, delay * 2);
  }
}

/** Calls `listener` for every event until the returned function is called. */
export function onEvent(listener: Listener): () => void {
  listeners.add(listener);
  if (idleTimer) clearTimeout(idleTimer);
  idleTimer = null;
  if (!connection) {
    connection = new AbortController();
    void stayConnected(connection.signal);
  }
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0) return;
    idleTimer = setTimeout(() => {
      connection?.abort();
      connection = null;
    }, IDLE_TIMEOUT_MS);
  };
}
