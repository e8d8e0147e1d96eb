/** Commands by their id: output, input, signals, end. */

import { inputFields, randomId } from "./bytes.js";
import { NotRunningError } from "./errors.js";
import { follow, type OutputChunk, type OutputOptions, readOutput } from "./follow.js";
import { Cursors, type ExitEvent, type GapEvent, type OutputEvent, type OutputName } from "./output.js";
import { type CommandAddress, execResult, readReceipt, waitForEnd } from "./receipt.js";
import type { CallOptions, KeyedOptions, Transport } from "./transport.js";
import type { ExecResult } from "./types.js";

/** Selects where to begin with the output of a command. */
export interface FollowOptions extends CallOptions {
  /** Offset of the first byte of each stream; 0 by default. */
  from?: { stdout?: number | undefined; stderr?: number | undefined } | undefined;
}

/** Options of a write to standard input. */
export interface StdinOptions extends CallOptions {
  /** Closes standard input after this data. */
  eof?: boolean | undefined;
  /** Input with the same id is written once; a random id by default. */
  writeId?: string | undefined;
}

/**
 * A command that runs or has ended. It belongs to the server: it continues when this program ends, and any other
 * program can attach to it by its id.
 */
export class Command {
  readonly id: string;
  readonly terminalId: string;
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport, { id, terminalId }: CommandAddress) {
    this.#transport = transport;
    this.id = id;
    this.terminalId = terminalId;
  }

  /**
   * Yields the output and then the end of the command, across dropped connections and restarts of the server.
   *
   * @example
   * ```ts
   * const command = await client.commands.attach(id);
   * for await (const event of command.follow()) {
   *   if (event.type === "stdout") process.stdout.write(event.data);
   * }
   * ```
   */
  follow(options: FollowOptions = {}): AsyncGenerator<OutputEvent | GapEvent | ExitEvent, void, undefined> {
    return follow(this.#transport, this, new Cursors(options.from), options.signal);
  }

  /** Waits until the command has ended. Aborting ends the wait, not the command. */
  async wait(options: CallOptions = {}): Promise<ExecResult> {
    return execResult(await waitForEnd(this.#transport, this, options.signal));
  }

  /** Returns the receipt without waiting; its status is `running` while the command runs. */
  async receipt(options: CallOptions = {}): Promise<ExecResult> {
    return execResult(await readReceipt(this.#transport, this.id, options.signal));
  }

  /** Reads a range of the output as raw bytes, including later output of background processes. */
  output(stream: OutputName = "stdout", options: OutputOptions = {}): Promise<OutputChunk> {
    return readOutput(this.#transport, this.id, stream, options);
  }

  /** Writes to the standard input of a command that was started with {@link ExecTarget.start}. */
  async writeStdin(data: string | Uint8Array, options: StdinOptions = {}): Promise<void> {
    const { eof, writeId, signal } = options;
    const body = { ...inputFields(data), write_id: writeId ?? randomId(), eof: eof ?? false };
    const path = { id: this.id };
    // The host recognizes the write id, so that a repetition is safe without a key.
    await this.#transport.call("post", "/api/commands/{id}/stdin", { path, body, signal, repeat: "same" });
  }

  /** Closes standard input. */
  closeStdin(options: CallOptions = {}): Promise<void> {
    return this.writeStdin("", { ...options, eof: true });
  }

  /** Sends a signal, such as `INT`, to the processes of the command. */
  async signal(name: string, options: KeyedOptions = {}): Promise<void> {
    const request = { ...options, path: { id: this.id }, body: { signal: name } };
    await this.#transport.call("post", "/api/commands/{id}/signal", request);
  }

  /** Ends the command with all its processes. Does nothing if the command has ended. */
  async cancel(options: CallOptions = {}): Promise<void> {
    const request = { path: { id: this.id }, signal: options.signal, repeat: "same" } as const;
    try {
      await this.#transport.call("post", "/api/commands/{id}/cancel", request);
    } catch (error) {
      if (!(error instanceof NotRunningError)) throw error;
    }
  }
}

/** The commands of all terminals. */
export class Commands {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Returns the command with this id, whichever client started it.
   *
   * @example
   * ```ts
   * const command = await client.commands.attach(id);
   * const result = await command.wait();
   * ```
   */
  async attach(id: string, options: CallOptions = {}): Promise<Command> {
    const { terminalId } = await readReceipt(this.#transport, id, options.signal);
    return new Command(this.#transport, { id, terminalId });
  }
}
