/**
 * Sandboxes for the Vercel AI SDK.
 *
 * @packageDocumentation
 */

import { concatBytes, decodeText } from "../bytes.js";
import { NotFoundError } from "../errors.js";
import type { Sandbox } from "../sandbox.js";
import { absolutePath, Programs, quote, WORKSPACE, writeFile } from "./programs.js";

interface ProcessOptions {
  command: string;
  workingDirectory?: string;
  env?: Record<string, string>;
  abortSignal?: AbortSignal;
}

interface PathOptions {
  path: string;
  abortSignal?: AbortSignal;
}

/** A process that was started by {@link SandboxSession.spawn}. */
export interface SandboxProcess {
  readonly stdout: ReadableStream<Uint8Array>;
  readonly stderr: ReadableStream<Uint8Array>;
  wait(): Promise<{ exitCode: number }>;
  kill(): Promise<void>;
}

/**
 * A sandbox as `Experimental_SandboxSession` of the AI SDK 7. Commands run side by side and share nothing but the files.
 *
 * @example
 * ```js
 * import { SandboxSession } from "@stead/sdk/ai";
 * const session = new SandboxSession(await client.sandboxes.create());
 * await generateText({ model, prompt, tools, experimental_sandbox: session });
 * ```
 */
export class SandboxSession {
  readonly description: string;
  readonly #sandbox: Sandbox;
  readonly #programs: Programs;

  constructor(sandbox: Sandbox, description = `A Linux sandbox. Commands start in ${WORKSPACE}.`) {
    this.#sandbox = sandbox;
    this.#programs = new Programs(sandbox);
    this.description = description;
  }

  /** Runs a command in a shell and waits for its end. Aborting ends the command. */
  run = async (options: ProcessOptions): Promise<{ exitCode: number; stdout: string; stderr: string }> => {
    const { command, workingDirectory: cwd, env, abortSignal: signal } = options;
    const { exitCode, stdout, stderr } = await this.#programs.run(command, { cwd, env, signal });
    return { exitCode, stdout: decodeText(stdout), stderr: decodeText(stderr) };
  };

  /** Starts a command and returns a handle to it. */
  spawn = async (
    options: ProcessOptions & { stdin?: boolean },
  ): Promise<SandboxProcess & { stdin: WritableStream<Uint8Array> }> => {
    const { command, workingDirectory: cwd, env, abortSignal } = options;
    const killed = new AbortController();
    const signal = abortSignal ? AbortSignal.any([abortSignal, killed.signal]) : killed.signal;
    const events = this.#programs.stream(command, { cwd, env, signal, openStdin: options.stdin ?? false });
    const first = await events.next();
    if (first.done || first.value.type !== "started") throw new Error("the command was not started");
    const started = first.value.command;
    const [stdout, stderr] = [new Pipe(), new Pipe()];
    const ended = (async () => {
      try {
        for await (const event of events) {
          if (event.type === "stdout") stdout.write(event.data);
          else if (event.type === "stderr") stderr.write(event.data);
          else if (event.type === "exit") return { exitCode: event.result.exitCode ?? 137 };
        }
        throw new Error("the command ended without a result");
      } catch (error) {
        if (killed.signal.aborted && !abortSignal?.aborted) return { exitCode: 137 };
        throw error;
      } finally {
        stdout.end();
        stderr.end();
      }
    })();
    // The caller may never wait.
    ended.catch(() => undefined);
    const handle = {
      stdout: stdout.readable,
      stderr: stderr.readable,
      wait: () => ended,
      kill: async () => {
        killed.abort();
        await ended.catch(() => undefined);
      },
    };
    const stdin = options.stdin && {
      stdin: new WritableStream<Uint8Array>({
        write: (chunk) => started.writeStdin(chunk),
        close: () => started.closeStdin(),
      }),
    };
    return { ...handle, ...stdin } as SandboxProcess & { stdin: WritableStream<Uint8Array> };
  };

  readFile = async (options: PathOptions): Promise<ReadableStream<Uint8Array> | null> => {
    const path = absolutePath(options.path);
    const found = await existing(this.#sandbox.files.stat(path, { signal: options.abortSignal }));
    return found && this.#sandbox.files.stream(path, { signal: options.abortSignal });
  };

  readBinaryFile = (options: PathOptions): Promise<Uint8Array | null> =>
    existing(this.#sandbox.files.read(absolutePath(options.path), { signal: options.abortSignal }));

  readTextFile = async (
    options: PathOptions & { encoding?: string; startLine?: number; endLine?: number },
  ): Promise<string | null> => {
    const bytes = await this.readBinaryFile(options);
    if (bytes === null) return null;
    const text = new TextDecoder(options.encoding ?? "utf-8").decode(bytes);
    if (options.startLine === undefined && options.endLine === undefined) return text;
    const lines = text.match(/[^\n]*\n|[^\n]+$/g) ?? [];
    return lines.slice((options.startLine ?? 1) - 1, options.endLine).join("");
  };

  writeFile = async (options: PathOptions & { content: ReadableStream<Uint8Array> }): Promise<void> => {
    const chunks: Uint8Array[] = [];
    for await (const chunk of options.content as unknown as AsyncIterable<Uint8Array>) chunks.push(chunk);
    await this.writeBinaryFile({ ...options, content: concatBytes(chunks) });
  };

  writeBinaryFile = (options: PathOptions & { content: Uint8Array }): Promise<void> =>
    writeFile(this.#sandbox, this.#programs, absolutePath(options.path), options.content);

  writeTextFile = (options: PathOptions & { content: string; encoding?: string }): Promise<void> => {
    if (!/^utf-?8$/i.test(options.encoding ?? "utf-8")) throw new Error("only UTF-8 can be written");
    return writeFile(this.#sandbox, this.#programs, absolutePath(options.path), options.content);
  };

  stat = async (
    options: PathOptions,
  ): Promise<{ type: "file" | "directory" | "other"; size: number } | null> => {
    const path = absolutePath(options.path);
    const info = await existing(this.#sandbox.files.stat(path, { signal: options.abortSignal }));
    if (info === null || info.type !== "link") return info as { type: "file"; size: number } | null;
    const { exitCode, stdout } = await this.#programs.run(`stat -L -c '%s %F' -- ${quote(path)}`);
    if (exitCode !== 0) return null;
    const [, size, kind] = /^(\d+) (.*)$/m.exec(decodeText(stdout)) ?? [];
    const type = kind === "directory" ? "directory" : kind?.includes("regular") ? "file" : "other";
    return { type, size: Number(size) };
  };

  listDirectory = async (
    options: PathOptions,
  ): Promise<{ name: string; type: "file" | "directory" | "symlink" | "other" }[] | null> => {
    const entries: { name: string; type: "file" | "directory" | "symlink" | "other" }[] = [];
    const listing = async () => {
      for await (const { name, type } of this.#sandbox.files.walk(absolutePath(options.path), { depth: 1 }))
        entries.push({ name, type: type === "link" ? "symlink" : type });
      return entries;
    };
    return existing(listing());
  };

  deleteFile = async (options: PathOptions): Promise<boolean> => {
    const request = this.#sandbox.files.remove(absolutePath(options.path), { signal: options.abortSignal });
    return (await existing(request.then(() => true))) ?? false;
  };
}

/** Returns what a request returned, or null if there is no such file. */
async function existing<T>(request: Promise<T>): Promise<T | null> {
  try {
    return await request;
  } catch (error) {
    if (error instanceof NotFoundError) return null;
    throw error;
  }
}

/** A stream that takes everything at once, because unread output of one stream must not hold up the other. */
class Pipe {
  #controller!: ReadableStreamDefaultController<Uint8Array>;
  #open = true;
  readonly readable = new ReadableStream<Uint8Array>({
    start: (controller) => {
      this.#controller = controller;
    },
    cancel: () => {
      this.#open = false;
    },
  });

  write(chunk: Uint8Array): void {
    if (this.#open) this.#controller.enqueue(chunk);
  }

  end(): void {
    if (this.#open) this.#controller.close();
    this.#open = false;
  }
}
