/** Programs in a sandbox that run side by side, each in a terminal of its own; terminals are reused. */

import { concatBytes, randomId } from "../bytes.js";
import type { ExecEvent } from "../exec.js";
import type { Sandbox } from "../sandbox.js";
import type { Terminal } from "../terminal.js";

/** Longer commands are sent as files: the kernel accepts arguments of up to 128 KiB. */
const MAX_INLINE_BYTES = 64 << 10;
export const WORKSPACE = "/workspace";

/** Options of {@link Programs.stream}. */
export interface ProgramOptions {
  /** Directory, absolute or below the workspace. */
  cwd?: string | undefined;
  env?: Record<string, string> | undefined;
  /** Aborting ends the program. */
  signal?: AbortSignal | undefined;
  openStdin?: boolean | undefined;
  timeoutMs?: number | undefined;
}

/** How a program ended, and what it wrote. */
export interface CompletedProgram {
  exitCode: number;
  stdout: Uint8Array;
  stderr: Uint8Array;
  timedOut: boolean;
}

/** Runs shell commands in a sandbox that share nothing but its files. */
export class Programs {
  readonly #sandbox: Sandbox;
  readonly #idle: Terminal[] = [];

  constructor(sandbox: Sandbox) {
    this.#sandbox = sandbox;
  }

  /** Runs a command in a shell of its own and yields its events. */
  async *stream(command: string, options: ProgramOptions = {}): AsyncGenerator<ExecEvent, void, undefined> {
    const { cwd, env, signal, openStdin, timeoutMs } = options;
    signal?.throwIfAborted();
    const script = `cd -- ${quote(cwd ?? ".")} || exit 1\n${command}`;
    let name: string | undefined;
    if (script.length > MAX_INLINE_BYTES) {
      name = `.stead-${randomId()}`;
      await this.#sandbox.files.write(`${WORKSPACE}/${name}`, script);
    }
    const text = `"\${SHELL:-/bin/sh}" ${name === undefined ? `-c ${quote(script)}` : `./${name}`}`;
    const terminal = this.#idle.pop() ?? (await this.#terminal());
    try {
      yield* terminal.execStream(text, { env, signal, openStdin, timeoutMs, cancelOnAbort: true });
      this.#idle.push(terminal);
    } finally {
      if (this.#idle.at(-1) !== terminal) await terminal.delete().catch(() => undefined);
      if (name !== undefined) await this.#sandbox.files.remove(`${WORKSPACE}/${name}`).catch(() => undefined);
    }
  }

  /** Runs a command and waits for its end. */
  async run(command: string, options: ProgramOptions = {}): Promise<CompletedProgram> {
    const output = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
    for await (const event of this.stream(command, options)) {
      if (event.type === "stdout" || event.type === "stderr") output[event.type].push(event.data);
      if (event.type === "exit") {
        const { exitCode, timedOut, status } = event.result;
        if (exitCode === null && !timedOut) throw new Error(`the command is ${status}`);
        const [stdout, stderr] = [concatBytes(output.stdout), concatBytes(output.stderr)];
        return { exitCode: exitCode ?? 124, stdout, stderr, timedOut };
      }
    }
    throw new Error("the command ended without a result");
  }

  async #terminal(): Promise<Terminal> {
    // Creating a terminal in a thread creates the thread, also one with the id of a deleted sandbox.
    await this.#sandbox.info();
    return this.#sandbox.terminals.create({ cwd: WORKSPACE });
  }
}

/** Returns a text as one word of a shell command. */
export function quote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** Returns a path of the sandbox as an absolute one. */
export function absolutePath(path: string): string {
  return path.startsWith("/") ? path : `${WORKSPACE}/${path}`;
}

/**
 * Writes a file anywhere in a sandbox. On an idmapped root, the server itself may not create files outside of the
 * workspace; a program of the sandbox may.
 */
export async function writeFile(
  sandbox: Sandbox,
  programs: Programs,
  path: string,
  content: Uint8Array | string,
): Promise<void> {
  if (path === WORKSPACE || path.startsWith(`${WORKSPACE}/`)) {
    await sandbox.files.write(path, content, { createDirs: true });
    return;
  }
  const staged = `.stead-${randomId()}`;
  await sandbox.files.write(`${WORKSPACE}/${staged}`, content);
  const script = `mkdir -p -- "$(dirname -- ${quote(path)})" && cat <${staged} >${quote(path)}
code=$?; rm -f ${staged}; exit $code`;
  const { exitCode, stderr } = await programs.run(script, { env: { LC_ALL: "C" } });
  if (exitCode !== 0) throw new Error(`cannot write ${path}: ${new TextDecoder().decode(stderr).trim()}`);
}
