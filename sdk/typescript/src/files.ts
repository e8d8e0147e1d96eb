/** The files of a thread or sandbox. */

import { concatBytes, decodeText, encodeText } from "./bytes.js";
import { NotFoundError, SteadError, VersionConflictError } from "./errors.js";
import { Listing } from "./listing.js";
import { resumingEvents } from "./stream.js";
import { type CallOptions, fillPath, type KeyedOptions, Retries, type Transport } from "./transport.js";
import type { FileInfo, PageOptions, SearchResult, WrittenFile } from "./types.js";

/** Maximum number of items of a page. */
const MAX_PAGE_ITEMS = 1000;

/** What a file is written from. */
export type FileContent = string | Uint8Array | ArrayBuffer | Blob | ReadableStream<Uint8Array>;

/** Selects a part of a file. */
export interface ReadOptions extends CallOptions {
  /** Offset of the first byte; 0 by default. */
  offset?: number | undefined;
  /** Maximum number of bytes; the rest of the file by default. */
  limit?: number | undefined;
}

/** Options of {@link Files.write}. */
export interface WriteOptions extends CallOptions {
  /** Create missing parent directories. */
  createDirs?: boolean | undefined;
  /** Write only if the file has this `etag`, else throw a {@link VersionConflictError}. */
  ifMatch?: string | undefined;
  /** Write only if the file does not exist. */
  ifAbsent?: boolean | undefined;
}

/** Options of {@link Files.list}. */
export interface ListFilesOptions extends PageOptions {
  /** Number of levels; 1 by default, 64 at most. */
  depth?: number | undefined;
}

/** A change of a file, or a notice about the watch itself. */
export type FileEvent =
  | { type: "ready" | "created" | "modified" | "removed"; path: string }
  /** Changes were missed, as after a lost connection: list the directory again. */
  | { type: "lost" }
  /** There are too many directories to watch all of them. */
  | { type: "partial" }
  /** The watched path is gone; the last event. */
  | { type: "gone" };

/**
 * The files of a thread or sandbox. `/workspace` has the files of the project, `/memories/hot` and
 * `/memories/persistent` its memories, `/tmp` is the sandbox's own; any other absolute path is in the sandbox.
 */
export class Files {
  readonly #transport: Transport;
  readonly #thread: string;

  /** @internal */
  constructor(transport: Transport, thread: string) {
    this.#transport = transport;
    this.#thread = thread;
  }

  /** Reads a file, or a part of it. */
  async read(path: string, options: ReadOptions = {}): Promise<Uint8Array<ArrayBuffer>> {
    const chunks: Uint8Array[] = [];
    for await (const chunk of this.#chunks(path, options)) chunks.push(chunk);
    return concatBytes(chunks);
  }

  /**
   * Reads a file as UTF-8 text.
   *
   * @example
   * ```ts
   * await thread.files.write("/workspace/notes/a.txt", "hello", { createDirs: true });
   * console.log(await thread.files.readText("/workspace/notes/a.txt"));
   * ```
   */
  async readText(path: string, options: ReadOptions = {}): Promise<string> {
    return decodeText(await this.read(path, options));
  }

  /**
   * Reads a file of any size as a stream. After a lost connection the stream continues where it stopped; it fails
   * with a {@link VersionConflictError} if the file was replaced meanwhile.
   */
  stream(path: string, options: ReadOptions = {}): ReadableStream<Uint8Array<ArrayBuffer>> {
    const chunks = this.#chunks(path, options);
    return new ReadableStream<Uint8Array<ArrayBuffer>>(
      {
        async pull(controller) {
          const { done, value } = await chunks.next();
          if (done) controller.close();
          else controller.enqueue(value);
        },
        async cancel() {
          await chunks.return();
        },
      },
      // Sends no request before the first read.
      { highWaterMark: 0 },
    );
  }

  /**
   * Writes a whole file atomically. A `ReadableStream` is sent as it is read and is not repeated after a failure; in
   * browsers it needs HTTP/2.
   */
  write(path: string, content: FileContent, options: WriteOptions = {}): Promise<WrittenFile> {
    const headers: Record<string, string> = {};
    if (options.ifMatch !== undefined) headers["if-match"] = options.ifMatch;
    if (options.ifAbsent) headers["if-none-match"] = "*";
    const conditional = options.ifMatch !== undefined || options.ifAbsent;
    return this.#transport.json("put", this.#path("write"), {
      query: { path, create_dirs: options.createDirs },
      body: typeof content === "string" ? encodeText(content) : (content as BodyInit),
      headers,
      // The repetition of a conditional write would fail because of the first one.
      repeat: conditional ? "never" : "same",
      signal: options.signal,
    });
  }

  /** Lists a directory. */
  list(path: string, options: ListFilesOptions = {}): Listing<FileInfo> {
    const { depth, limit, signal } = options;
    return new Listing(options.cursor, (cursor) => {
      const query = { path, depth, limit, cursor };
      return this.#transport.json("get", this.#path("list"), { query, signal });
    });
  }

  /** Yields all entries of a directory, each directory before its own entries. */
  async *walk(
    path: string,
    options: { depth?: number; signal?: AbortSignal } = {},
  ): AsyncGenerator<FileInfo> {
    yield* this.list(path, { ...options, limit: MAX_PAGE_ITEMS });
  }

  /** Returns the metadata of a file or directory. Symbolic links are not followed. */
  stat(path: string, options: CallOptions = {}): Promise<FileInfo> {
    return this.#transport.json("get", this.#path("stat"), { ...options, query: { path } });
  }

  /** Returns whether there is a file, directory or link at a path. */
  async exists(path: string, options: CallOptions = {}): Promise<boolean> {
    try {
      await this.stat(path, options);
      return true;
    } catch (error) {
      if (error instanceof NotFoundError) return false;
      throw error;
    }
  }

  /** Creates a directory. With `createDirs`, its parents too, and an existing directory is accepted. */
  mkdir(path: string, options: KeyedOptions & { createDirs?: boolean } = {}): Promise<FileInfo> {
    const { createDirs, ...rest } = options;
    const json = { path, create_dirs: createDirs ?? false };
    return this.#transport.json("post", this.#path("mkdir"), {
      ...rest,
      json,
      ...(createDirs && { repeat: "same" }),
    });
  }

  /** Moves or renames a file or directory. */
  move(from: string, to: string, options: KeyedOptions & { overwrite?: boolean } = {}): Promise<FileInfo> {
    const { overwrite, ...rest } = options;
    const json = { from, to, overwrite: overwrite ?? false };
    return this.#transport.json("post", this.#path("move"), { ...rest, json });
  }

  /** Deletes a file or an empty directory; with `recursive`, a directory with its content. */
  async remove(path: string, options: CallOptions & { recursive?: boolean } = {}): Promise<void> {
    const { recursive, signal } = options;
    await this.#transport.json("delete", this.#path("remove"), { query: { path, recursive }, signal });
  }

  /** Searches the lines of files with a regular expression. */
  search(
    path: string,
    pattern: string,
    options: CallOptions & { limit?: number } = {},
  ): Promise<SearchResult> {
    const { limit, signal } = options;
    return this.#transport.json("get", this.#path("search"), { query: { path, pattern, limit }, signal });
  }

  /**
   * Yields the changes of a file or directory: first `ready`, then `created`, `modified` and `removed`. After a lost
   * connection the watch continues with `lost`.
   *
   * @example
   * ```ts
   * for await (const event of thread.files.watch("/workspace", { recursive: true })) {
   *   if (event.type === "created") console.log(event.path);
   * }
   * ```
   */
  async *watch(
    path: string,
    options: CallOptions & { recursive?: boolean } = {},
  ): AsyncGenerator<FileEvent, void, undefined> {
    const request = { query: { path, recursive: options.recursive }, signal: options.signal };
    let ready = false;
    const events = resumingEvents(
      this.#transport,
      this.#path("watch"),
      request,
      (event) => event.name === "gone",
    );
    for await (const event of events) {
      if (event === "reconnected") continue;
      if (event.name === "ready" && ready) {
        yield { type: "lost" };
        continue;
      }
      ready = true;
      const { path } = event.data as { path?: string };
      yield { type: event.name, ...(path !== undefined && { path }) } as FileEvent;
    }
  }

  #path(verb: string): string {
    return `${fillPath("/api/threads/{tid}/fs/", { tid: this.#thread })}${verb}`;
  }

  async *#chunks(
    path: string,
    options: ReadOptions,
  ): AsyncGenerator<Uint8Array<ArrayBuffer>, void, undefined> {
    const { signal, limit } = options;
    const retries = new Retries(this.#transport.retryTimeoutMs);
    const start = options.offset ?? 0;
    let [received, etag]: [number, string | null | undefined] = [0, undefined];
    for (;;) {
      const query = {
        path,
        offset: start + received || undefined,
        limit: limit === undefined ? undefined : limit - received,
      };
      const stream = await this.#transport.open("get", this.#path("read"), { query, signal });
      try {
        if (etag !== undefined && stream.header("etag") !== etag) throw replaced(path);
        etag = stream.header("etag");
        const length = Number(stream.header("content-length") ?? Number.NaN);
        let arrived = 0;
        for await (const chunk of stream.chunks()) {
          retries.succeeded();
          arrived += chunk.length;
          received += chunk.length;
          yield chunk;
        }
        if (arrived < length) throw new Error("the response was cut off");
        return;
      } catch (cause) {
        signal?.throwIfAborted();
        if (cause instanceof SteadError) throw cause;
        await retries.wait(this.#transport.connectionError(cause), signal);
      } finally {
        stream.close();
      }
    }
  }
}

function replaced(path: string): VersionConflictError {
  const detail = `${path} was replaced while it was read`;
  return new VersionConflictError({ code: "version_conflict", detail, status: 0 });
}
