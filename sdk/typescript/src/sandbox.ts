/** Sandboxes: compute with a name, labels and a lifetime, each with the thread that runs in it. */

import { snakeKeys } from "./case.js";
import { ExecTarget } from "./exec.js";
import type { Files } from "./files.js";
import { Listing } from "./listing.js";
import type { Ports } from "./ports.js";
import { type Terminals, Thread } from "./thread.js";
import { type CallOptions, fillPath, type KeyedOptions, type Transport } from "./transport.js";
import type { PageOptions, SandboxInfo, SnapshotInfo } from "./types.js";

/** What can be changed in a sandbox. */
export interface SandboxSettings {
  /** Name, unique within the project. */
  name?: string | undefined;
  /** Labels, which replace all previous ones. */
  labels?: Record<string, string> | undefined;
  /** Lifetime in seconds, from now. */
  timeoutS?: number | undefined;
  /** What happens at the end of the lifetime. */
  onTimeout?: "suspend" | "destroy" | undefined;
}

/** Options of {@link Sandboxes.create}. */
export interface CreateSandboxOptions extends KeyedOptions {
  /** Name, unique within the project. If a sandbox of this name exists, it is returned instead. */
  name?: string | undefined;
  projectId?: string | undefined;
  /** The default provider if omitted. */
  provider?: string | undefined;
  /** Image whose files it starts with. */
  image?: string | undefined;
  /** Snapshot whose files it starts with. */
  snapshot?: string | undefined;
  cpus?: number | undefined;
  /** Memory limit, e.g. `512m`. */
  memory?: string | undefined;
  /** Maximum number of processes and threads. */
  processes?: number | undefined;
  /** Disk limit, e.g. `10g`. */
  disk?: string | undefined;
  /** Rules for outgoing connections. */
  egress?: Record<string, unknown> | undefined;
  /** Capabilities of root inside, over its own files and users; `root` by default. */
  capabilities?: "root" | "none" | undefined;
  /** Environment variables of its shells. */
  env?: Record<string, string> | undefined;
  /** Lifetime in seconds; unlimited if omitted. A use after the lifetime starts a new one. */
  timeoutS?: number | undefined;
  /** What happens at the end of the lifetime: `suspend` (default) or `destroy`. */
  onTimeout?: "suspend" | "destroy" | undefined;
  labels?: Record<string, string> | undefined;
}

/** Options of {@link Sandbox.suspend}. */
export interface SuspendOptions extends CallOptions {
  /** Whether memory is kept, too; refused if the provider cannot. */
  memory?: boolean | undefined;
}

/** Options of {@link Sandbox.fork}; those that are omitted are the original's. */
export interface ForkSandboxOptions extends KeyedOptions {
  /** Whether memory is copied, too; refused if the provider cannot. */
  memory?: boolean | undefined;
  name?: string | undefined;
  labels?: Record<string, string> | undefined;
  timeoutS?: number | undefined;
}

/** A sandbox. Commands, files and terminals are those of its thread. */
export class Sandbox extends ExecTarget {
  readonly id: string;
  readonly thread: Thread;
  readonly files: Files;
  readonly terminals: Terminals;
  #latest: SandboxInfo;

  /** @internal */
  constructor(transport: Transport, info: SandboxInfo) {
    super(transport, fillPath("/api/threads/{tid}", { tid: info.threadId }));
    this.id = info.sandboxId;
    this.thread = new Thread(transport, info.threadId);
    this.files = this.thread.files;
    this.terminals = this.thread.terminals;
    this.#latest = info;
  }

  /** What the server reported last; {@link Sandbox.info} requests it again. */
  get latest(): SandboxInfo {
    return this.#latest;
  }

  async info(options: CallOptions = {}): Promise<SandboxInfo> {
    this.#latest = await this.transport.call("get", "/api/sandboxes/{id}", {
      ...options,
      path: { id: this.id },
    });
    return this.#latest;
  }

  /** The TCP ports that programs in the sandbox listen on, and links to them. */
  get ports(): Ports {
    return this.thread.ports;
  }

  /** Changes the name, labels or lifetime. */
  async update(settings: SandboxSettings, options: CallOptions = {}): Promise<SandboxInfo> {
    const request = { ...options, path: { id: this.id }, body: snakeKeys(settings) };
    this.#latest = await this.transport.call("patch", "/api/sandboxes/{id}", request);
    return this.#latest;
  }

  /** Deletes the sandbox with its thread and everything in it. */
  async delete(options: CallOptions = {}): Promise<void> {
    await this.transport.call("delete", "/api/sandboxes/{id}", { ...options, path: { id: this.id } });
  }

  /** Pauses the sandbox with its processes. The next use resumes it. */
  async pause(options: CallOptions = {}): Promise<SandboxInfo> {
    const request = { ...options, path: { id: this.id }, repeat: "same" } as const;
    this.#latest = await this.transport.call("post", "/api/sandboxes/{id}/pause", request);
    return this.#latest;
  }

  /** Resumes the sandbox after a pause or suspension. */
  async resume(options: CallOptions = {}): Promise<SandboxInfo> {
    const request = { ...options, path: { id: this.id }, repeat: "same" } as const;
    this.#latest = await this.transport.call("post", "/api/sandboxes/{id}/resume", request);
    return this.#latest;
  }

  /** Ends the processes and keeps the files and the state of the shells, from which the next use starts. */
  async suspend(options: SuspendOptions = {}): Promise<SandboxInfo> {
    const { memory, signal } = options;
    const request = { path: { id: this.id }, body: snakeKeys({ memory }), signal, repeat: "same" } as const;
    this.#latest = await this.transport.call("post", "/api/sandboxes/{id}/suspend", request);
    return this.#latest;
  }

  /** Extends the lifetime to at least this many seconds from now. */
  async extend(timeoutS: number, options: CallOptions = {}): Promise<SandboxInfo> {
    const request = {
      ...options,
      path: { id: this.id },
      body: { timeout_s: timeoutS },
      repeat: "same",
    } as const;
    this.#latest = await this.transport.call("post", "/api/sandboxes/{id}/extend", request);
    return this.#latest;
  }

  /**
   * Creates a sandbox with a copy of the files, whose shell continues with the directory, variables and functions of
   * this one.
   *
   * @example
   * ```ts
   * const attempts = await Promise.all([1, 2, 3].map(() => sandbox.fork()));
   * const results = await Promise.all(attempts.map((attempt) => attempt.exec("./try.sh")));
   * ```
   */
  async fork(options: ForkSandboxOptions = {}): Promise<Sandbox> {
    const { signal, idempotencyKey, ...fields } = options;
    const request = { path: { id: this.id }, body: snakeKeys(fields), signal, idempotencyKey };
    return new Sandbox(
      this.transport,
      await this.transport.call("post", "/api/sandboxes/{id}/fork", request),
    );
  }

  /** Keeps a copy of the files under a name, with which other sandboxes can be created. */
  snapshot(name: string, options: KeyedOptions = {}): Promise<SnapshotInfo> {
    const request = { ...options, path: { id: this.id }, body: { name } };
    return this.transport.call("post", "/api/sandboxes/{id}/snapshot", request);
  }
}

/** The sandboxes of the server. */
export class Sandboxes {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Creates a sandbox and starts it.
   *
   * @example
   * ```ts
   * const sandbox = await client.sandboxes.create({ timeoutS: 3600, labels: { job: "42" } });
   * console.log((await sandbox.exec("uname -a")).stdout);
   * await sandbox.delete();
   * ```
   */
  async create(options: CreateSandboxOptions = {}): Promise<Sandbox> {
    const { signal, idempotencyKey, ...fields } = options;
    const request = { body: snakeKeys(fields), signal, idempotencyKey };
    return new Sandbox(this.#transport, await this.#transport.call("post", "/api/sandboxes", request));
  }

  async get(id: string, options: CallOptions = {}): Promise<Sandbox> {
    const info = await this.#transport.call("get", "/api/sandboxes/{id}", { ...options, path: { id } });
    return new Sandbox(this.#transport, info);
  }

  /** Lists the sandboxes, newest first. `labels` and `states` select some of them. */
  list(
    options: PageOptions & { labels?: Record<string, string>; states?: string[]; projectId?: string } = {},
  ): Listing<Sandbox> {
    const { labels = {}, states = [], projectId, limit, signal } = options;
    const pairs = Object.entries(labels).map(([key, value]) => `${key}=${value}`);
    const selected = {
      label: pairs.join(",") || undefined,
      state: states.join(",") || undefined,
      project_id: projectId,
      limit,
    };
    return new Listing(options.cursor, async (cursor) => {
      const query = { ...selected, cursor };
      const { items, nextCursor } = await this.#transport.call("get", "/api/sandboxes", { query, signal });
      const sandboxes = items.map((info) => new Sandbox(this.#transport, info));
      return { items: sandboxes, nextCursor: nextCursor ?? null };
    });
  }
}
