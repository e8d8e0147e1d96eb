/** Copies directories to and from a thread or sandbox. */

import { createReadStream, createWriteStream } from "node:fs";
import { chmod, mkdir, readdir, readFile, stat } from "node:fs/promises";
import { join, posix } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { SteadError } from "../errors.js";
import type { Files } from "../files.js";

/** Files that are copied at the same time. */
const CONCURRENCY = 8;
/** Larger files are streamed: a stream cannot be repeated after a lost connection, but needs no memory. */
const MAX_BUFFERED_BYTES = 64 << 20;
/** Maximum depth of a listing. */
const MAX_DEPTH_LEVELS = 64;

/** Options of {@link uploadDirectory} and {@link downloadDirectory}. */
export interface TransferOptions {
  /** Selects what is copied, by its path below the directory; a directory that is not selected is skipped whole. */
  filter?: ((path: string) => boolean) | undefined;
  signal?: AbortSignal | undefined;
}

/** What was copied. */
export interface TransferSummary {
  files: number;
  bytes: number;
  /** Symbolic links and special files, which are not copied. */
  skipped: string[];
}

/**
 * Copies a local directory to a thread or sandbox. Existing files are replaced. Permissions and symbolic links are not
 * transferred.
 *
 * @example
 * ```ts
 * await uploadDirectory(thread.files, "./app", "/workspace/app", { filter: (path) => path !== "node_modules" });
 * ```
 */
export async function uploadDirectory(
  files: Files,
  local: string,
  remote: string,
  options: TransferOptions = {},
): Promise<TransferSummary> {
  const { signal, filter = () => true } = options;
  const summary: TransferSummary = { files: 0, bytes: 0, skipped: [] };
  const found: string[] = [];
  const visit = async (below: string): Promise<void> => {
    signal?.throwIfAborted();
    await files.mkdir(posix.join(remote, below), { createDirs: true, ...(signal && { signal }) });
    const entries = await readdir(join(local, below), { withFileTypes: true });
    for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const path = posix.join(below, entry.name);
      if (!filter(path)) continue;
      if (entry.isDirectory()) await visit(path);
      else if (entry.isFile()) found.push(path);
      else summary.skipped.push(path);
    }
  };
  await visit("");
  await inParallel(found, async (path) => {
    const source = join(local, path);
    const { size } = await stat(source);
    const content =
      size > MAX_BUFFERED_BYTES
        ? (Readable.toWeb(createReadStream(source)) as ReadableStream<Uint8Array>)
        : await readFile(source);
    const written = await files.write(posix.join(remote, path), content, { signal });
    summary.files += 1;
    summary.bytes += written.size;
  });
  return summary;
}

/**
 * Copies a directory of a thread or sandbox to a local directory. Existing files are replaced; the permission to
 * execute is kept. Symbolic links are not copied.
 *
 * @example
 * ```ts
 * await downloadDirectory(thread.files, "/workspace/report", "./report");
 * ```
 */
export async function downloadDirectory(
  files: Files,
  remote: string,
  local: string,
  options: TransferOptions = {},
): Promise<TransferSummary> {
  const { signal, filter = () => true } = options;
  const summary: TransferSummary = { files: 0, bytes: 0, skipped: [] };
  const found: { path: string; mode: string | null | undefined }[] = [];
  const left: string[] = [];
  await mkdir(local, { recursive: true });
  for await (const entry of files.walk(remote, { depth: MAX_DEPTH_LEVELS, ...(signal && { signal }) })) {
    const path = posix.relative(remote, entry.path);
    // The sandbox chooses the names: none may lead out of the directory.
    if (path === "" || path.split("/").includes("..") || posix.isAbsolute(path)) {
      const detail = `${JSON.stringify(entry.path)} is not below ${JSON.stringify(remote)}`;
      throw new SteadError({ code: "invalid_path", detail, status: 0 });
    }
    if (left.some((directory) => path.startsWith(directory))) continue;
    if (!filter(path)) {
      if (entry.type === "directory") left.push(`${path}/`);
    } else if (entry.type === "directory") {
      await mkdir(join(local, path), { recursive: true });
    } else if (entry.type === "file") {
      found.push({ path, mode: entry.mode });
    } else {
      summary.skipped.push(path);
    }
  }
  await inParallel(found, async ({ path, mode }) => {
    const target = join(local, path);
    let bytes = 0;
    const source = Readable.fromWeb(files.stream(posix.join(remote, path), { signal }) as never);
    source.on("data", (chunk: Uint8Array) => {
      bytes += chunk.length;
    });
    await pipeline(source, createWriteStream(target));
    if (mode && Number.parseInt(mode, 8) & 0o100) await chmod(target, 0o755);
    summary.files += 1;
    summary.bytes += bytes;
  });
  return summary;
}

async function inParallel<T>(items: T[], act: (item: T) => Promise<void>): Promise<void> {
  const queue = items.values();
  const worker = async (): Promise<void> => {
    for (const item of queue) await act(item);
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, worker));
}
