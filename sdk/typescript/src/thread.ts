/** Threads: one conversation or task, with a shell, files and terminals. */

import { snakeKeys } from "./case.js";
import { ExecTarget } from "./exec.js";
import { Files } from "./files.js";
import { Listing } from "./listing.js";
import { type Ports, portsOf } from "./ports.js";
import { Terminal } from "./terminal.js";
import { type CallOptions, fillPath, type KeyedOptions, type Transport } from "./transport.js";
import type {
  LeaseInfo,
  MessageInfo,
  PageOptions,
  SessionInfo,
  TerminalInfo,
  ThreadInfo,
  ThreadSummary,
} from "./types.js";

/** Options of {@link Terminals.create}. */
export interface TerminalOptions extends KeyedOptions {
  /** Program and arguments; the shell by default. The terminal ends with an explicit program. */
  cmd?: string[] | undefined;
  cols?: number | undefined;
  rows?: number | undefined;
  /** Initial working directory. */
  cwd?: string | undefined;
  env?: Record<string, string> | undefined;
  /** `bash` (default), `zsh` or `sh`. */
  shell?: string | undefined;
}

/** The terminals of a thread. */
export class Terminals {
  readonly #transport: Transport;
  readonly #thread: string;

  /** @internal */
  constructor(transport: Transport, thread: string) {
    this.#transport = transport;
    this.#thread = thread;
  }

  list(options: PageOptions = {}): Listing<TerminalInfo> {
    const { limit, signal } = options;
    const path = { tid: this.#thread };
    return new Listing(options.cursor, (cursor) =>
      this.#transport.call("get", "/api/threads/{tid}/terminals", { path, query: { limit, cursor }, signal }),
    );
  }

  /** Creates a terminal. Creates the thread if it does not exist. */
  async create(options: TerminalOptions = {}): Promise<Terminal> {
    const { signal, idempotencyKey, ...body } = options;
    const request = { path: { tid: this.#thread }, body: snakeKeys(body), signal, idempotencyKey };
    const info = await this.#transport.call("post", "/api/threads/{tid}/terminals", request);
    return new Terminal(this.#transport, info.terminalId);
  }

  /** Returns the default terminal, in which the thread's commands run. */
  async default(options: CallOptions = {}): Promise<Terminal> {
    const request = { ...options, path: { tid: this.#thread } };
    const info = await this.#transport.call("get", "/api/threads/{tid}/terminal", request);
    return new Terminal(this.#transport, info.terminalId);
  }
}

/** Limits of the sessions of a thread. */
export interface Policy {
  idleTimeoutS?: number | undefined;
  maxDurationS?: number | undefined;
  /** What happens to the sandbox when a session expires. */
  onExpiry?: "keep" | "pause" | "stop" | undefined;
  maxRunningHours?: number | undefined;
  maxCost?: number | undefined;
}

/** Options of {@link Threads.put}. */
export interface ThreadOptions extends CallOptions {
  projectId?: string | undefined;
  /** The provider of its compute; cannot be changed later. */
  provider?: string | undefined;
  /** Image, limits, egress and capabilities of its sandbox; cannot be changed later. */
  sandbox?: Record<string, unknown> | undefined;
  /** Id of a lease to share; cannot be changed later. */
  leaseId?: string | undefined;
  policy?: Policy | undefined;
  /** Environment variables of its shells. */
  env?: Record<string, string> | undefined;
  /** Initial working directory of its shells. */
  cwd?: string | undefined;
  labels?: Record<string, string> | undefined;
}

/**
 * A thread. Its id is chosen by the client, and its first command creates it.
 *
 * @example
 * ```ts
 * const thread = client.threads.open("build");
 * await thread.exec("cd /srv/app && export STAGE=test");
 * console.log((await thread.exec("echo $STAGE in $PWD")).stdout);
 * ```
 */
export class Thread extends ExecTarget {
  readonly id: string;
  readonly files: Files;
  readonly terminals: Terminals;
  readonly ports: Ports;

  /** @internal */
  constructor(transport: Transport, id: string) {
    super(transport, fillPath("/api/threads/{tid}", { tid: id }));
    this.id = id;
    this.files = new Files(transport, id);
    this.terminals = new Terminals(transport, id);
    this.ports = portsOf(transport, id);
  }

  info(options: CallOptions = {}): Promise<ThreadInfo> {
    return this.transport.call("get", "/api/threads/{tid}", { ...options, path: { tid: this.id } });
  }

  /** Deletes the thread with its terminals and, unless another thread shares it, its sandbox. */
  async delete(options: CallOptions = {}): Promise<void> {
    await this.transport.call("delete", "/api/threads/{tid}", { ...options, path: { tid: this.id } });
  }

  /** Returns the lease: the claim on compute, and the instance that runs under it. */
  lease(options: CallOptions = {}): Promise<LeaseInfo> {
    return this.transport.call("get", "/api/threads/{tid}/lease", { ...options, path: { tid: this.id } });
  }

  /** Pauses the instance. The next command resumes it. */
  pause(options: CallOptions = {}): Promise<LeaseInfo> {
    const request = { ...options, path: { tid: this.id }, repeat: "same" } as const;
    return this.transport.call("post", "/api/threads/{tid}/pause", request);
  }

  resume(options: CallOptions = {}): Promise<LeaseInfo> {
    const request = { ...options, path: { tid: this.id }, repeat: "same" } as const;
    return this.transport.call("post", "/api/threads/{tid}/resume", request);
  }

  session(options: CallOptions = {}): Promise<SessionInfo> {
    return this.transport.call("get", "/api/threads/{tid}/session", { ...options, path: { tid: this.id } });
  }

  /** Keeps the session alive. */
  touch(options: CallOptions = {}): Promise<SessionInfo> {
    const request = { ...options, path: { tid: this.id }, repeat: "same" } as const;
    return this.transport.call("post", "/api/threads/{tid}/session/touch", request);
  }

  messages(options: PageOptions = {}): Listing<MessageInfo> {
    const { limit, signal } = options;
    const path = { tid: this.id };
    return new Listing(options.cursor, (cursor) =>
      this.transport.call("get", "/api/threads/{tid}/messages", { path, query: { limit, cursor }, signal }),
    );
  }

  /** Adds a message of the conversation, which the timeline shows beside the commands. */
  addMessage(
    role: "system" | "user" | "assistant" | "tool",
    content: string,
    options: KeyedOptions = {},
  ): Promise<MessageInfo> {
    const request = { ...options, path: { tid: this.id }, body: { role, content } };
    return this.transport.call("post", "/api/threads/{tid}/messages", request);
  }
}

/** The threads of the server. */
export class Threads {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Returns a handle to a thread. Sends no request: the first command or terminal creates the thread. */
  open(id: string): Thread {
    return new Thread(this.#transport, id);
  }

  /** Creates a thread with options, or changes one. */
  async put(id: string, options: ThreadOptions = {}): Promise<Thread> {
    const { signal, policy, ...fields } = options;
    const body = { ...snakeKeys(fields), ...(policy && { policy: snakeKeys(policy) }) };
    await this.#transport.call("put", "/api/threads/{tid}", { path: { tid: id }, body, signal });
    return this.open(id);
  }

  list(options: PageOptions & { projectId?: string } = {}): Listing<ThreadSummary> {
    const { projectId, limit, signal } = options;
    return new Listing(options.cursor, (cursor) => {
      const query = { project_id: projectId, limit, cursor };
      return this.#transport.call("get", "/api/threads", { query, signal });
    });
  }
}
