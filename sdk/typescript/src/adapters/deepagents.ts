/**
 * Sandboxes for LangChain's deepagents.
 *
 * @packageDocumentation
 */

import { encodeText } from "../bytes.js";
import { ForbiddenError, NotFoundError, SteadError } from "../errors.js";
import type { Sandbox } from "../sandbox.js";
import { Programs, writeFile } from "./programs.js";

type FileOperationError = "file_not_found" | "permission_denied" | "is_directory" | "invalid_path";

/** The result of a command: both streams, standard error last. */
export interface ExecuteResponse {
  output: string;
  exitCode: number | null;
  truncated: boolean;
}

export interface FileUploadResponse {
  path: string;
  error: FileOperationError | null;
}

export interface FileDownloadResponse extends FileUploadResponse {
  content: Uint8Array | null;
}

/** A sandbox as deepagents uses it, without the operations that its `BaseSandbox` derives from these. */
export interface SandboxBackend {
  readonly id: string;
  execute(command: string): Promise<ExecuteResponse>;
  uploadFiles(files: [string, Uint8Array][]): Promise<FileUploadResponse[]>;
  downloadFiles(paths: string[]): Promise<FileDownloadResponse[]>;
}

// biome-ignore lint/suspicious/noExplicitAny: a mixin takes any arguments
type Class<T> = abstract new (...args: any[]) => T;

/** Operations that deepagents implements with commands. */
const FILE_OPERATIONS = ["ls", "read", "readRaw", "write", "edit", "delete", "grep", "glob"];
const [OWNER_READ, OWNER_WRITE] = [0o400, 0o200];

/**
 * Returns a backend class for deepagents: its `BaseSandbox` with our sandboxes behind it. This package does not depend
 * on deepagents, so the class is an argument.
 *
 * Commands run in the sandbox's live shell, which keeps its directory and variables and which people can watch. Reading,
 * listing and searching files uses other terminals, so that it works while a command or a person occupies the shell.
 *
 * @example
 * ```js
 * import { BaseSandbox, createDeepAgent } from "deepagents";
 * import { steadSandbox } from "@stead/sdk/deepagents";
 * const SteadSandbox = steadSandbox(BaseSandbox);
 * const agent = createDeepAgent({ model, backend: new SteadSandbox(await client.sandboxes.create()) });
 * ```
 */
export function steadSandbox<T extends object>(Base: Class<T>): new (sandbox: Sandbox) => SandboxBackend & T {
  class FileCommands extends (Base as Class<object>) implements SandboxBackend {
    readonly id: string;
    protected readonly sandbox: Sandbox;
    readonly #programs: Programs;

    constructor(sandbox: Sandbox) {
      super();
      this.id = sandbox.id;
      this.sandbox = sandbox;
      this.#programs = new Programs(sandbox);
    }

    async execute(command: string): Promise<ExecuteResponse> {
      const { exitCode, stdout, stderr } = await this.#programs.run(command);
      const decoder = new TextDecoder();
      return { output: decoder.decode(stdout) + decoder.decode(stderr), exitCode, truncated: false };
    }

    async uploadFiles(files: [string, Uint8Array | string][]): Promise<FileUploadResponse[]> {
      const responses: FileUploadResponse[] = [];
      for (const [path, content] of files) {
        const bytes = typeof content === "string" ? encodeText(content) : content;
        const error = await errorOf(path, async () => {
          await checkPermission(this.sandbox, path, OWNER_WRITE).catch(ignoreMissing);
          await writeFile(this.sandbox, this.#programs, path, bytes);
        });
        responses.push({ path, error });
      }
      return responses;
    }

    async downloadFiles(paths: string[]): Promise<FileDownloadResponse[]> {
      const responses: FileDownloadResponse[] = [];
      for (const path of paths) {
        let content: Uint8Array | null = null;
        const error = await errorOf(path, async () => {
          await checkPermission(this.sandbox, path, OWNER_READ);
          content = await this.sandbox.files.read(path);
        });
        responses.push({ path, content, error });
      }
      return responses;
    }
  }

  class LiveShell extends FileCommands {
    constructor(sandbox: Sandbox) {
      super(sandbox);
      const aside = new FileCommands(sandbox) as unknown as Record<string, unknown>;
      for (const name of FILE_OPERATIONS) {
        const operation = aside[name];
        if (typeof operation === "function") Object.assign(this, { [name]: operation.bind(aside) });
      }
    }

    override async execute(command: string): Promise<ExecuteResponse> {
      // Throws if the sandbox was deleted: a command in a thread would create the thread again.
      const terminal = await this.sandbox.terminals.default();
      const { stdout, stderr, exitCode, truncated } = await terminal.exec(command);
      return { output: stdout + stderr, exitCode, truncated };
    }
  }
  return LiveShell as unknown as new (
    sandbox: Sandbox,
  ) => SandboxBackend & T;
}

/** Programs in a sandbox often run as root, whom the kernel never refuses. */
async function checkPermission(sandbox: Sandbox, path: string, bit: number): Promise<void> {
  const { type, mode } = await sandbox.files.stat(path);
  if (type === "file" && mode && !(Number.parseInt(mode, 8) & bit)) throw new Error("Permission denied");
}

function ignoreMissing(error: unknown): void {
  if (!(error instanceof NotFoundError)) throw error;
}

/** Returns the name that deepagents has for the error of an action; throws errors that are not about the file. */
async function errorOf(path: string, action: () => Promise<void>): Promise<FileOperationError | null> {
  if (!path.startsWith("/")) return "invalid_path";
  try {
    await action();
    return null;
  } catch (error) {
    if (error instanceof NotFoundError) return "file_not_found";
    if (error instanceof ForbiddenError) return "permission_denied";
    const reason = error instanceof SteadError ? error.code : String(error);
    if (/is_a_directory|Is a directory/.test(reason)) return "is_directory";
    if (/Permission denied|Read-only file system/.test(reason)) return "permission_denied";
    if (/not_a_directory|not_a_file|invalid_path|Not a directory|File exists/.test(reason))
      return "invalid_path";
    throw error;
  }
}
