/** The events of the server. */

import { camelKeys } from "./case.js";
import { resumingEvents } from "./stream.js";
import type { CallOptions, Transport } from "./transport.js";

/** Something that happened to a thread, session, terminal, command, lease or project. */
export interface SteadEvent {
  /** Such as `thread_created`, `command_ended` or `session_expiring`. */
  type: string;
  /** The position of the event; undefined for measurements, which are not kept. */
  id?: number;
  /** The time of the event. */
  at?: string;
  /** The affected resources, such as `threadId`. */
  [field: string]: unknown;
}

/** Options of {@link Stead.events}. */
export interface EventsOptions extends CallOptions {
  /** Start after this event id instead of now. */
  from?: number | undefined;
}

export async function* serverEvents(
  transport: Transport,
  options: EventsOptions,
): AsyncGenerator<SteadEvent, void, undefined> {
  const lastEventId = options.from === undefined ? undefined : String(options.from);
  const request = { signal: options.signal, lastEventId };
  for await (const event of resumingEvents(transport, "/api/events", request, () => false)) {
    if (event === "reconnected") continue;
    yield { ...(camelKeys(event.data) as object), type: event.name };
  }
}
