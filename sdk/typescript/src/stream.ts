/** Streams of server-sent events that reconnect. */

import { SteadError, UnavailableError } from "./errors.js";
import type { ServerEvent } from "./sse.js";
import { Retries, type SendOptions, type Transport } from "./transport.js";

/** An event, or the notice that the connection was lost and restored. */
export type ResumedEvent = ServerEvent | "reconnected";

/**
 * Yields the events of a path, and continues after the last received id when the connection is lost. Ends when
 * `isLast` accepts an event.
 */
export async function* resumingEvents(
  transport: Transport,
  path: string,
  options: SendOptions & { lastEventId?: string | undefined },
  isLast: (event: ServerEvent) => boolean,
): AsyncGenerator<ResumedEvent, void, undefined> {
  const retries = new Retries(transport.retryTimeoutMs);
  let { lastEventId } = options;
  let connected = false;
  for (;;) {
    const headers: Record<string, string> = { accept: "text/event-stream" };
    if (lastEventId !== undefined) headers["last-event-id"] = lastEventId;
    const stream = await transport.open("get", path, { ...options, headers });
    try {
      if (connected) yield "reconnected";
      connected = true;
      for await (const event of stream.events()) {
        retries.succeeded();
        lastEventId = event.id ?? lastEventId;
        // Followed by the end of the stream; the next server continues it.
        if (isStopping(event)) continue;
        yield event;
        if (isLast(event)) return;
      }
      throw new Error("the stream ended");
    } catch (cause) {
      options.signal?.throwIfAborted();
      if (cause instanceof SteadError && !(cause instanceof UnavailableError)) throw cause;
      await retries.wait(transport.connectionError(cause), options.signal);
    } finally {
      stream.close();
    }
  }
}

function isStopping(event: ServerEvent): boolean {
  return event.name === "notice" && (event.data as { code?: unknown }).code === "stopping";
}
