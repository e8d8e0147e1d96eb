/** Terminals: their screen, input and state. */

import { decodeBase64, decodeText, encodeText, inputFields, randomId } from "./bytes.js";
import { SteadError, WaitTimeoutError } from "./errors.js";
import { ExecTarget } from "./exec.js";
import { Listing } from "./listing.js";
import type { ServerEvent } from "./sse.js";
import { resumingEvents } from "./stream.js";
import { Scope } from "./time.js";
import { type CallOptions, fillPath, type KeyedOptions, type Transport } from "./transport.js";
import type {
  CommandInfo,
  PageOptions,
  Screen,
  TerminalInfo,
  TerminalState,
  VersionDetail,
  VersionInfo,
} from "./types.js";

/** An event of {@link Terminal.attach}. */
export type TerminalEvent =
  /** The whole screen, as escape sequences for a new terminal of that size. The first event, and after a long gap. */
  | { type: "snapshot"; text: string; offset: number; cols: number; rows: number }
  | { type: "data"; data: Uint8Array; text: string; offset: number }
  | { type: "resize"; cols: number; rows: number }
  | { type: "title"; title: string }
  | { type: "notice"; detail: string }
  /** Output that is no longer available. */
  | { type: "gap"; from: number; to: number }
  /** Another client has control; null if none has. */
  | { type: "driver"; driver: string | null }
  /** The program of the terminal has ended; the last event. */
  | { type: "exit"; code: number | null; signal: string | null };

/** Options of {@link Terminal.attach}. */
export interface AttachOptions extends CallOptions {
  /** Start after this offset instead of with a snapshot. */
  from?: number | undefined;
  /** The name of this client, which other clients see. */
  name?: string | undefined;
  /** Whether to resume a paused sandbox; true by default. */
  resume?: boolean | undefined;
}

/** What {@link Terminal.waitFor} waits for. `prompt` means that the shell has nothing in the foreground. */
export type WaitCondition = string | RegExp | { prompt: true };

/** Options of {@link Terminal.waitFor}. */
export interface WaitOptions extends CallOptions {
  /** Throws a {@link WaitTimeoutError} after this time; 30 seconds by default. */
  timeoutMs?: number | undefined;
  /** Number of scrollback lines to search above the screen; none by default. */
  scrollback?: number | undefined;
}

const WAIT_TIMEOUT_MS = 30_000;

/** The versions of a terminal's state: directory, variables, functions and options of its shell. */
export class Versions {
  readonly #terminal: string;
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport, terminal: string) {
    this.#transport = transport;
    this.#terminal = terminal;
  }

  /** Lists the versions, newest first. */
  list(options: PageOptions = {}): Listing<VersionInfo> {
    const { limit, signal } = options;
    const path = { id: this.#terminal };
    return new Listing(options.cursor, (cursor) =>
      this.#transport.call("get", "/api/terminals/{id}/versions", { path, query: { limit, cursor }, signal }),
    );
  }

  /** Returns one version; with `since`, only its differences from that version. */
  get(version: number, options: CallOptions & { since?: number } = {}): Promise<VersionDetail> {
    const { since, signal } = options;
    const path = { id: this.#terminal, v: version };
    return this.#transport.call("get", "/api/terminals/{id}/versions/{v}", {
      path,
      query: { since },
      signal,
    });
  }

  /**
   * Restores an earlier version, which becomes the newest one.
   *
   * @example
   * ```ts
   * const before = (await terminal.info()).version;
   * await terminal.exec("cd /; unset PATH");
   * await terminal.versions.rollback(before);
   * ```
   */
  rollback(version: number, options: KeyedOptions = {}): Promise<TerminalState> {
    const request = { ...options, path: { id: this.#terminal }, body: { version } };
    return this.#transport.call("post", "/api/terminals/{id}/rollback", request);
  }

  /** Creates a terminal in the same thread from a version of this one, the current one by default. */
  async fork(version?: number, options: KeyedOptions = {}): Promise<Terminal> {
    const body = version === undefined ? {} : { version };
    const request = { ...options, path: { id: this.#terminal }, body };
    const info = await this.#transport.call("post", "/api/terminals/{id}/fork", request);
    return new Terminal(this.#transport, info.terminalId);
  }
}

/** A terminal: a shell or program on a PTY, which clients can watch and type into at the same time. */
export class Terminal extends ExecTarget {
  readonly id: string;
  readonly versions: Versions;

  /** @internal */
  constructor(transport: Transport, id: string) {
    super(transport, fillPath("/api/terminals/{id}", { id }));
    this.id = id;
    this.versions = new Versions(transport, id);
  }

  info(options: CallOptions = {}): Promise<TerminalInfo> {
    return this.transport.call("get", "/api/terminals/{id}", { ...options, path: { id: this.id } });
  }

  /** Ends the program of the terminal and deletes the terminal. */
  async delete(options: CallOptions = {}): Promise<void> {
    await this.transport.call("delete", "/api/terminals/{id}", { ...options, path: { id: this.id } });
  }

  /**
   * Yields the screen and then all output, across dropped connections and restarts of the server.
   *
   * @example
   * ```ts
   * for await (const event of terminal.attach()) {
   *   if (event.type === "snapshot" || event.type === "data") process.stdout.write(event.text);
   *   if (event.type === "exit") break;
   * }
   * ```
   */
  async *attach(options: AttachOptions = {}): AsyncGenerator<TerminalEvent, void, undefined> {
    const { from, name, resume, signal } = options;
    const lastEventId = from === undefined ? undefined : String(from);
    const request = { query: { name, resume, mode: "viewer" }, signal, lastEventId };
    const path = fillPath("/api/terminals/{id}/stream", { id: this.id });
    for await (const event of resumingEvents(this.transport, path, request, ({ name }) => name === "exit")) {
      if (event === "reconnected") continue;
      yield terminalEvent(event);
    }
  }

  /** Returns the screen as escape sequences, with the cursor and the offset of the output that it includes. */
  screen(options: CallOptions & { scrollback?: number } = {}): Promise<Screen> {
    const { scrollback, signal } = options;
    const request = { path: { id: this.id }, query: { scrollback }, signal };
    return this.transport.call("get", "/api/terminals/{id}/snapshot", request);
  }

  /** Returns the text on the screen. */
  async screenText(options: CallOptions & { scrollback?: number } = {}): Promise<string> {
    return (await this.#screenText(options)).text;
  }

  /** Types into the terminal. The input is typed at most once, also when the request is repeated. */
  async type(data: string | Uint8Array, options: CallOptions & { writeId?: string } = {}): Promise<void> {
    const { writeId, signal } = options;
    const body = { ...inputFields(data), write_id: writeId ?? randomId() };
    const request = { path: { id: this.id }, body, signal, repeat: "same" } as const;
    await this.transport.call("post", "/api/terminals/{id}/input", request);
  }

  async resize(cols: number, rows: number, options: CallOptions = {}): Promise<void> {
    const request = { ...options, path: { id: this.id }, body: { cols, rows }, repeat: "same" } as const;
    await this.transport.call("post", "/api/terminals/{id}/resize", request);
  }

  /** Sends a signal, such as `INT`, to the foreground program. */
  async signal(name: string, options: KeyedOptions = {}): Promise<void> {
    const request = { ...options, path: { id: this.id }, body: { signal: name } };
    await this.transport.call("post", "/api/terminals/{id}/signal", request);
  }

  /** Sets and removes exported variables in the live shell. */
  setEnv(
    set: Record<string, string>,
    options: CallOptions & { unset?: string[] } = {},
  ): Promise<TerminalState> {
    const { unset, signal } = options;
    const body = { set, unset: unset ?? [] };
    return this.transport.call("patch", "/api/terminals/{id}/env", { path: { id: this.id }, body, signal });
  }

  /** Lists the commands of the terminal, newest first; `q` is a text that they contain. */
  history(options: PageOptions & { q?: string } = {}): Listing<CommandInfo> {
    const { q, limit, signal } = options;
    return new Listing(options.cursor, (cursor) => {
      const request = { path: { id: this.id }, query: { q, limit, cursor }, signal };
      return this.transport.call("get", "/api/terminals/{id}/commands", request);
    });
  }

  /**
   * Waits until a text or pattern is on the screen, or until the shell shows its prompt because nothing runs in the
   * foreground. Returns the text of the screen.
   *
   * The wait for the prompt runs the command `:`, which waits like any other command until the shell is free.
   *
   * @example
   * ```ts
   * await terminal.type("python3\n");
   * await terminal.waitFor(">>> ");
   * await terminal.type("exit()\n");
   * await terminal.waitFor({ prompt: true });
   * ```
   */
  async waitFor(condition: WaitCondition, options: WaitOptions = {}): Promise<string> {
    const { timeoutMs = WAIT_TIMEOUT_MS, signal, scrollback } = options;
    const scope = new Scope(signal);
    scope.timeout(timeoutMs);
    try {
      if (isPrompt(condition)) {
        await this.exec(":", { signal: scope.signal, cancelOnAbort: true });
        return await this.screenText({ signal: scope.signal });
      }
      return await this.#waitForText(condition, scope.signal, scrollback);
    } catch (error) {
      if (signal?.aborted || !scope.signal.aborted || error instanceof SteadError) throw error;
      const what = isPrompt(condition) ? "the prompt" : String(condition);
      const detail = `waited ${timeoutMs} ms for ${what} in terminal ${this.id}`;
      throw new WaitTimeoutError({ code: "timeout", detail, status: 0, cause: error });
    } finally {
      scope.release();
    }
  }

  async #waitForText(wanted: string | RegExp, signal: AbortSignal, scrollback?: number): Promise<string> {
    for (;;) {
      const { text, offset } = await this.#screenText({ signal, scrollback });
      if (typeof wanted === "string" ? text.includes(wanted) : text.search(wanted) !== -1) return text;
      // Any event after the offset may have changed the screen.
      for await (const event of this.attach({ from: offset, signal })) if (event.type !== "driver") break;
    }
  }

  async #screenText(options: {
    scrollback?: number | undefined;
    signal?: AbortSignal | undefined;
  }): Promise<{ text: string; offset: number }> {
    const { scrollback, signal } = options;
    const path = fillPath("/api/terminals/{id}/snapshot", { id: this.id });
    const headers = { accept: "text/plain" };
    return this.transport.send(
      "get",
      path,
      { query: { format: "text", scrollback }, headers, signal },
      async (response) => ({
        text: await response.text(),
        offset: Number(response.headers.get("x-offset")),
      }),
    );
  }
}

function isPrompt(condition: WaitCondition): condition is { prompt: true } {
  return typeof condition === "object" && "prompt" in condition;
}

function terminalEvent(event: ServerEvent): TerminalEvent {
  const body = event.data as Record<string, unknown>;
  if (event.name === "snapshot") {
    const { data, ...rest } = body;
    return { type: "snapshot", text: data, ...rest } as TerminalEvent;
  }
  if (event.name === "data") {
    const text = typeof body.data === "string" ? body.data : undefined;
    const data = text === undefined ? decodeBase64(String(body.data_base64)) : encodeText(text);
    return { type: "data", data, text: text ?? decodeText(data), offset: Number(body.offset) };
  }
  return { type: event.name, ...body } as TerminalEvent;
}
