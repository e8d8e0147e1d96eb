/** Running commands in a shell: waiting for the result, or streaming the output. */

import { concatBytes, decodeBase64, decodeText, encodeText, randomId } from "./bytes.js";
import { type CamelKeys, camelKeys } from "./case.js";
import { Command } from "./command.js";
import { CommandError, ConnectionError, SteadError, serverError, UnavailableError } from "./errors.js";
import { follow, readOutput } from "./follow.js";
import {
  Cursors,
  type ExitEvent,
  type GapEvent,
  OUTPUTS,
  type OutputEvent,
  type OutputName,
} from "./output.js";
import { execResult, type Receipt } from "./receipt.js";
import type { components } from "./schema.js";
import { type KeyedOptions, Retries, type SendOptions, type Transport } from "./transport.js";
import type { ExecResult } from "./types.js";

/**
 * How long the request that starts a command waits for its end. The wait for a longer command continues with
 * requests that cost nothing to repeat.
 */
const YIELD_MS = 10_000;
/** How long to try to cancel a command after the caller's signal was aborted. */
const CANCEL_TIMEOUT_MS = 10_000;
/** Default of `max_output_bytes` in the server. */
const DEFAULT_OUTPUT_BYTES = 1 << 20;

/** Options of every command. */
export interface StartOptions extends KeyedOptions {
  /** Ends the command and all its processes after this time. */
  timeoutMs?: number | undefined;
  /** Environment variables for this command only. */
  env?: Record<string, string> | undefined;
  /** Working directory for this command only. */
  cwd?: string | undefined;
  /** What to do while another command runs: `wait` (default) or `fail` with a {@link BusyError}. */
  ifBusy?: "wait" | "fail" | undefined;
  /** Whether to resume a paused sandbox; true by default. Otherwise a {@link LeasePausedError} is thrown. */
  resume?: boolean | undefined;
}

/** Options of {@link ExecTarget.execStream}. */
export interface ExecStreamOptions extends StartOptions {
  /** Standard input; empty by default. */
  stdin?: string | undefined;
  /**
   * Maximum number of bytes of each stream in the result; 1 MiB by default, 64 MiB at most. The server keeps 104
   * MiB of each stream: this much of its beginning, but at least 8 MiB, and the rest from its end. A reader that is
   * further behind receives a `gap`.
   */
  maxOutputBytes?: number | undefined;
  /**
   * Whether aborting `signal` also cancels the command; false by default. The call then throws after the server
   * has accepted the cancellation. Otherwise aborting ends only the wait, and the command continues.
   */
  cancelOnAbort?: boolean | undefined;
}

/** Options of {@link ExecTarget.exec}. */
export interface ExecOptions extends ExecStreamOptions {
  /** Throws a {@link CommandError} unless the command exits with 0. */
  check?: boolean | undefined;
}

/** The server has accepted the command. */
export interface StartedEvent {
  type: "started";
  command: Command;
}

/** An event of {@link ExecTarget.execStream}. */
export type ExecEvent = StartedEvent | OutputEvent | GapEvent | ExitEvent;

type ExecBody = components["schemas"]["ExecRequest"];

/** A shell that runs commands: the default terminal of a thread or sandbox, or one terminal. */
export class ExecTarget {
  /** @internal */
  protected readonly transport: Transport;
  readonly #path: string;

  /** @internal */
  constructor(transport: Transport, path: string) {
    this.transport = transport;
    this.#path = `${path}/exec`;
  }

  /**
   * Runs a command in the live shell and waits for its end. The directory, variables and functions that it sets are
   * there for the next command.
   *
   * The command runs once, even if the connection fails or the server is restarted meanwhile.
   *
   * @example
   * ```ts
   * const result = await thread.exec("make test", { timeoutMs: 120_000 });
   * console.log(result.exitCode, result.stdout);
   * ```
   */
  async exec(command: string, options: ExecOptions = {}): Promise<ExecResult> {
    const result =
      options.cancelOnAbort && options.signal
        ? await this.#streamToEnd(command, options)
        : await this.#waitForEnd(command, options);
    await this.#complete(result, options);
    if (options.check && !result.ok) throw new CommandError(command, result);
    return result;
  }

  /**
   * Runs a command and yields its output as it is written: `started`, any number of `stdout`, `stderr` and `gap`, and
   * finally `exit`.
   *
   * Each byte is delivered once and in the order of its stream. After a lost connection the output continues where it
   * stopped. Leaving the loop early ends the stream, not the command. With `openStdin`, the command of the `started`
   * event can be written to.
   *
   * @example
   * ```ts
   * for await (const event of thread.execStream("npm test")) {
   *   if (event.type === "stdout") process.stdout.write(event.data);
   *   if (event.type === "exit") console.log(event.result.exitCode);
   * }
   * ```
   */
  async *execStream(
    command: string,
    options: ExecStreamOptions & { openStdin?: boolean | undefined } = {},
  ): AsyncGenerator<ExecEvent, void, undefined> {
    const { signal, cancelOnAbort } = options;
    // With `yield_ms`, a repetition of the request returns the id of the command at once.
    const body: ExecBody = { ...execBody(command, options), yield_ms: 0 };
    if (!options.openStdin) body.stdin = options.stdin ?? "";
    const request = { json: body, idempotencyKey: options.idempotencyKey ?? randomId() };
    let started: Command | undefined;
    try {
      for await (const event of this.#stream({ ...request, signal })) {
        if (event.type === "started") started = event.command;
        yield event;
      }
    } catch (error) {
      if (signal?.aborted && cancelOnAbort) await this.#cancel(started, { ...request, signal });
      throw error;
    }
  }

  /**
   * Starts a command with an open standard input and returns without waiting for its end.
   *
   * @example
   * ```ts
   * const command = await thread.start("sort");
   * await command.writeStdin("b\na\n", { eof: true });
   * console.log((await command.wait()).stdout);
   * ```
   */
  async start(command: string, options: StartOptions = {}): Promise<Command> {
    const json: ExecBody = { ...execBody(command, options), yield_ms: 0 };
    const { signal, idempotencyKey } = options;
    return this.#command(await this.#post({ json, signal, idempotencyKey }));
  }

  #command({ commandId, terminalId }: Pick<Receipt, "commandId" | "terminalId">): Command {
    return new Command(this.transport, { id: commandId, terminalId });
  }

  #post(options: SendOptions): Promise<Receipt> {
    return this.transport.json("post", this.#path, options);
  }

  async #waitForEnd(command: string, options: ExecOptions): Promise<ExecResult> {
    const { signal, idempotencyKey } = options;
    const json: ExecBody = { ...execBody(command, options), stdin: options.stdin ?? "", yield_ms: YIELD_MS };
    const receipt = await this.#post({ json, signal, idempotencyKey });
    return receipt.status === "running" ? this.#command(receipt).wait({ signal }) : execResult(receipt);
  }

  /** Only a stream learns the id of the command, which a cancellation needs, before its end. */
  async #streamToEnd(command: string, options: ExecOptions): Promise<ExecResult> {
    for await (const event of this.execStream(command, options)) {
      if (event.type === "exit") return event.result;
    }
    throw new ConnectionError({ code: "connection", detail: "the stream ended without a result", status: 0 });
  }

  /**
   * Reads the rest of the output if a receipt has less than the caller asked for: all but the first one have at most
   * 1 MiB of each stream.
   */
  async #complete(result: ExecResult, options: ExecOptions): Promise<void> {
    const max = options.maxOutputBytes ?? DEFAULT_OUTPUT_BYTES;
    if (!result.truncated || max <= DEFAULT_OUTPUT_BYTES) return;
    const { commandId: id } = result;
    result.truncated = false;
    for (const stream of OUTPUTS) {
      const [chunks, length]: [Uint8Array[], number] = [[], Math.min(max, result[`${stream}Bytes`])];
      let offset = 0;
      while (offset < length) {
        const range = {
          from: offset,
          limit: Math.min(length - offset, DEFAULT_OUTPUT_BYTES),
          signal: options.signal,
        };
        const chunk = await readOutput(this.transport, id, stream, range);
        if (chunk.data.length === 0 || chunk.offset !== offset) break;
        chunks.push(chunk.data);
        offset = chunk.nextOffset;
      }
      result.truncated ||= offset < result[`${stream}Bytes`];
      setOutput(result, stream, concatBytes(chunks));
    }
  }

  async *#stream(request: SendOptions): AsyncGenerator<ExecEvent, void, undefined> {
    const retries = new Retries(this.transport.retryTimeoutMs);
    const cursors = new Cursors();
    let started: Command | undefined;
    while (started === undefined) {
      const headers = { accept: "text/event-stream" };
      const stream = await this.transport.open("post", this.#path, { ...request, headers });
      try {
        if (!stream.header("content-type")?.startsWith("text/event-stream")) {
          started = this.#command(camelKeys(JSON.parse(await textOf(stream.chunks()))));
          yield { type: "started", command: started };
          break;
        }
        for await (const { name, data } of stream.events()) {
          const event = data as StreamData;
          if (name === "started") {
            started = this.#command(camelKeys(data) as Receipt);
            yield { type: "started", command: started };
          } else if (name === "stdout" || name === "stderr") {
            yield* cursors[name].accept(event.offset as number, bytesOf(event));
          } else if (name === "gap") {
            yield* cursors[event.stream as OutputName].skip(event.to as number);
          } else if (name === "error") {
            throw serverError({ code: String(event.code), detail: String(event.detail), status: 0 });
          } else if (name === "exit") {
            yield* cursors.flush();
            yield { type: "exit", result: execResult(camelKeys(data) as CamelKeys<ReceiptJson>) };
            return;
          }
        }
        throw new Error("the stream ended before the command");
      } catch (cause) {
        request.signal?.throwIfAborted();
        if (cause instanceof SteadError && !(cause instanceof UnavailableError)) throw cause;
        const error = cause instanceof SteadError ? cause : this.transport.connectionError(cause);
        if (started === undefined) await retries.wait(error, request.signal);
      } finally {
        stream.close();
      }
    }
    yield* follow(this.transport, started, cursors, request.signal);
  }

  /** Cancels the command of a request whose caller has aborted. */
  async #cancel(started: Command | undefined, request: SendOptions): Promise<void> {
    const signal = AbortSignal.timeout(CANCEL_TIMEOUT_MS);
    try {
      const command = started ?? this.#command(await this.#post({ ...request, signal }));
      await command.cancel({ signal });
    } catch (error) {
      throw new AggregateError(
        [error, request.signal?.reason],
        "the wait was aborted, but the command not cancelled",
      );
    }
  }
}

type ReceiptJson = components["schemas"]["CommandReceipt"];
type StreamData = Record<string, unknown>;

function execBody(
  command: string,
  options: StartOptions & { maxOutputBytes?: number | undefined },
): ExecBody {
  const { timeoutMs, env, cwd, ifBusy, resume, maxOutputBytes } = options;
  const body: ExecBody = { command };
  if (timeoutMs !== undefined) body.timeout_ms = timeoutMs;
  if (env !== undefined) body.env = env;
  if (cwd !== undefined) body.cwd = cwd;
  if (ifBusy !== undefined) body.if_busy = ifBusy;
  if (resume !== undefined) body.resume = resume;
  if (maxOutputBytes !== undefined) body.max_output_bytes = maxOutputBytes;
  return body;
}

async function textOf(chunks: AsyncIterable<Uint8Array>): Promise<string> {
  const all: Uint8Array[] = [];
  for await (const chunk of chunks) all.push(chunk);
  return decodeText(concatBytes(all));
}

function bytesOf(event: StreamData): Uint8Array {
  return typeof event.data === "string" ? encodeText(event.data) : decodeBase64(String(event.data_base64));
}

function setOutput(result: ExecResult, stream: OutputName, bytes: Uint8Array): void {
  result[stream] = decodeText(bytes);
  delete result[`${stream}Base64`];
}
