/** The files of a thread: workspace, memories, and the files of its instance. */

import { EventParser } from "../lib/sse.ts";
import { get, getBytes, list, path, problemOf, send, sendBytes } from "./client.ts";
import type { FileEntry } from "./types.ts";

const MAX_ENTRIES = 5000;
const WATCH_RETRY_MS = 5000;

const route = (thread: string, verb: string, query: Record<string, string>): string =>
  `${path("api", "threads", thread, "fs", verb)}?${new URLSearchParams(query)}`;

export const listDirectory = (thread: string, directory: string): Promise<FileEntry[]> =>
  list<FileEntry>(route(thread, "list", { path: directory, limit: "1000" }), MAX_ENTRIES);

export const statFile = (thread: string, file: string): Promise<FileEntry> =>
  get(route(thread, "stat", { path: file }));

/** The address of a file's content, which the browser saves and never displays. */
export const fileAddress = (thread: string, file: string): string => route(thread, "read", { path: file });

/** A whole file, and its entity tag of the same moment. */
export async function readFile(
  thread: string,
  file: string,
): Promise<{ bytes: Uint8Array; etag: string | null }> {
  const { bytes, headers } = await getBytes(fileAddress(thread, file));
  return { bytes, etag: headers.get("etag") };
}

/** What must be at the path for a write to succeed. */
export type Expected = { is: "absent" } | { is: "unchanged"; etag: string } | { is: "anything" };

function condition(expected: Expected): Record<string, string> {
  switch (expected.is) {
    case "absent":
      return { "if-none-match": "*" };
    case "unchanged":
      return { "if-match": expected.etag };
    case "anything":
      return {};
  }
}

/** Replaces a file; refused with 409 if it is not as expected. */
export const writeFile = (
  thread: string,
  file: string,
  content: string,
  expected: Expected,
): Promise<{ etag: string | null }> =>
  sendBytes("PUT", route(thread, "write", { path: file }), content, condition(expected));

export const makeDirectory = (thread: string, directory: string): Promise<unknown> =>
  send("POST", path("api", "threads", thread, "fs", "mkdir"), { path: directory });

export const moveFile = (thread: string, from: string, to: string): Promise<unknown> =>
  send("POST", path("api", "threads", thread, "fs", "move"), { from, to });

export const removeFile = (thread: string, { path: file, type }: FileEntry): Promise<unknown> =>
  send("DELETE", route(thread, "remove", { path: file, recursive: String(type === "directory") }));

/** Writes a file of the person's machine, and reports the share that was sent. */
export function uploadFile(
  thread: string,
  file: string,
  content: Blob,
  expected: Expected,
  onProgress: (share: number) => void,
  signal: AbortSignal,
): Promise<void> {
  // `fetch` does not report the progress of a request.
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("PUT", route(thread, "write", { path: file, create_dirs: "true" }));
    for (const [name, value] of Object.entries(condition(expected))) request.setRequestHeader(name, value);
    request.setRequestHeader("content-type", "application/octet-stream");
    request.upload.onprogress = ({ loaded, total }) => onProgress(total > 0 ? loaded / total : 1);
    request.onload = () => {
      if (request.status < 300) resolve();
      else reject(problemOf(request.status, parse(request.responseText)));
    };
    request.onerror = () => reject(new Error("the connection was lost"));
    request.onabort = () => reject(signal.reason);
    signal.addEventListener("abort", () => request.abort());
    request.send(content);
  });
}

function parse(text: string): Record<string, unknown> {
  try {
    return JSON.parse(text) as Record<string, unknown>;
  } catch {
    return {};
  }
}

/** Calls `onChange` with every path that changes below a directory; null if any may have. */
export function watchFiles(
  thread: string,
  directory: string,
  onChange: (changed: string | null) => void,
): () => void {
  const controller = new AbortController();
  const { signal } = controller;
  void (async () => {
    for (let first = true; !signal.aborted; first = false) {
      // After an interruption, changes may have been missed.
      const onReady = (): void => void (first || onChange(null));
      await readChanges(thread, directory, signal, onReady, onChange).catch(() => {});
      if (!signal.aborted) await new Promise((resolve) => setTimeout(resolve, WATCH_RETRY_MS));
    }
  })();
  return () => controller.abort();
}

async function readChanges(
  thread: string,
  directory: string,
  signal: AbortSignal,
  onReady: () => void,
  onChange: (changed: string | null) => void,
): Promise<void> {
  const address = route(thread, "watch", { path: directory, recursive: String(directory !== "/") });
  const response = await fetch(address, {
    signal,
    cache: "no-store",
    credentials: "same-origin",
    headers: { accept: "text/event-stream" },
  });
  if (!response.ok || !response.body) return;
  const parser = new EventParser();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    for (const event of parser.feed(value)) {
      if (event.name === "ready") onReady();
      else if (event.name === "lost") onChange(null);
      else if (["created", "modified", "removed"].includes(event.name)) {
        const changed = parse(event.data).path;
        onChange(typeof changed === "string" ? changed : null);
      }
    }
  }
}
