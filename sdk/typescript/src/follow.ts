/** Follows a command by its id, from any offset: for callers that attach, and after a lost connection. */

import { concatBytes } from "./bytes.js";
import { GoneError } from "./errors.js";
import {
  type Cursors,
  type ExitEvent,
  type GapEvent,
  OUTPUTS,
  type OutputEvent,
  type OutputName,
} from "./output.js";
import { type CommandAddress, execResult, type Receipt, waitForEnd } from "./receipt.js";
import { Scope } from "./time.js";
import { fillPath, Retries, type Transport } from "./transport.js";

/** How long a request waits for output. */
const WAIT_MS = 20_000;
/** Maximum number of bytes in one response. */
const CHUNK_BYTES = 1 << 20;

/** A range of the output of a command. */
export interface OutputChunk {
  /** Offset of the first byte, which is later than requested if older output is no longer kept. */
  offset: number;
  /** Offset of the next byte. */
  nextOffset: number;
  data: Uint8Array<ArrayBuffer>;
  /** Whether no more output can follow. */
  end: boolean;
}

/** Selects a range of the output of a command. */
export interface OutputOptions {
  /** Offset of the first byte; 0 by default. */
  from?: number | undefined;
  /** Maximum number of bytes; 1 MiB by default, 8 MiB at most. */
  limit?: number | undefined;
  /** Time to wait for the first byte; at most 60 seconds. */
  waitMs?: number | undefined;
  signal?: AbortSignal | undefined;
}

/** Reads a range of the output of a command. */
export async function readOutput(
  transport: Transport,
  id: string,
  stream: OutputName,
  options: OutputOptions,
): Promise<OutputChunk> {
  const { from, limit, waitMs, signal } = options;
  const query = { stream, from, limit, wait_ms: waitMs };
  const retries = new Retries(transport.retryTimeoutMs);
  for (;;) {
    const response = await transport.open("get", fillPath("/api/commands/{id}/output", { id }), {
      query,
      signal,
    });
    const number = (name: string): number => Number(response.header(name));
    const [offset, end] = [number("x-offset"), response.header("x-end") === "true"];
    const chunks: Uint8Array[] = [];
    try {
      for await (const chunk of response.chunks()) chunks.push(chunk);
      return { offset, nextOffset: number("x-next-offset"), data: concatBytes(chunks), end };
    } catch (cause) {
      signal?.throwIfAborted();
      const data = concatBytes(chunks);
      // What has arrived is not requested again.
      if (data.length > 0) return { offset, nextOffset: offset + data.length, data, end: false };
      await retries.wait(transport.connectionError(cause), signal);
    }
  }
}

type Outcome = { stream: OutputName; chunk: OutputChunk | undefined } | { receipt: Receipt };

/** Yields the output of a command from the cursors on, then its end. */
export async function* follow(
  transport: Transport,
  command: CommandAddress,
  cursors: Cursors,
  signal: AbortSignal | undefined,
): AsyncGenerator<OutputEvent | GapEvent | ExitEvent, void, undefined> {
  const { id } = command;
  const scope = new Scope(signal);
  const pending = new Map<OutputName | "receipt", Promise<Outcome>>();
  const open = new Set(OUTPUTS);
  let wake = (): void => {};
  const closed = new Promise<void>((resolve) => {
    wake = resolve;
  });
  const start = (name: OutputName | "receipt", outcome: Promise<Outcome>): void => {
    // An outcome that is no longer waited for must not count as an unhandled rejection.
    outcome.catch(() => {});
    pending.set(name, outcome);
  };
  const poll = async (stream: OutputName): Promise<Outcome> => {
    const options = {
      from: cursors[stream].offset,
      limit: CHUNK_BYTES,
      waitMs: WAIT_MS,
      signal: scope.signal,
    };
    return { stream, chunk: await kept(readOutput(transport, id, stream, options)) };
  };
  try {
    start(
      "receipt",
      waitForEnd(transport, command, scope.signal, closed).then((receipt) => ({ receipt })),
    );
    for (;;) {
      for (const stream of open) if (!pending.has(stream)) start(stream, poll(stream));
      const outcome = await Promise.race(pending.values());
      if ("receipt" in outcome) {
        scope.abort();
        yield* rest(transport, id, cursors, outcome.receipt, signal);
        yield* cursors.flush();
        yield { type: "exit", result: execResult(outcome.receipt) };
        return;
      }
      const { stream, chunk } = outcome;
      pending.delete(stream);
      if (chunk) yield* cursors[stream].accept(chunk.offset, chunk.data);
      if (!chunk || chunk.end) open.delete(stream);
      // A command whose output is closed ends soon.
      if (open.size === 0) wake();
    }
  } finally {
    scope.release();
    scope.abort();
  }
}

/** Yields the rest of the output of a command that has ended. */
async function* rest(
  transport: Transport,
  id: string,
  cursors: Cursors,
  receipt: Receipt,
  signal: AbortSignal | undefined,
): AsyncGenerator<OutputEvent | GapEvent, void, undefined> {
  for (const stream of OUTPUTS) {
    const [cursor, length] = [cursors[stream], receipt[`${stream}Bytes`]];
    while (cursor.offset < length) {
      const options = { from: cursor.offset, limit: CHUNK_BYTES, signal };
      const chunk = await kept(readOutput(transport, id, stream, options));
      if (!chunk || chunk.data.length === 0) yield* cursor.skip(length);
      // Later output of background processes is not part of the command.
      else yield* cursor.accept(chunk.offset, chunk.data.subarray(0, Math.max(0, length - chunk.offset)));
    }
  }
}

/** Returns `undefined` if the output is no longer kept. */
async function kept(chunk: Promise<OutputChunk>): Promise<OutputChunk | undefined> {
  try {
    return await chunk;
  } catch (error) {
    if (error instanceof GoneError) return undefined;
    throw error;
  }
}
