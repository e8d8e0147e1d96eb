/** Uploads of files, with their progress. */

import { useState } from "preact/hooks";
import { describe, Problem } from "../api/client.ts";
import { type Expected, uploadFile } from "../api/files.ts";
import { join } from "../lib/file-tree.ts";
import { bytes } from "../lib/time.ts";
import { ask } from "../ui/dialogs.tsx";
import { Button } from "../ui/parts.tsx";
import type { UploadItem } from "./folders.ts";

export interface Upload {
  id: number;
  path: string;
  size: number;
  /** The share that was sent, from 0 to 1. */
  share: number;
  state: "running" | "done" | "failed" | "cancelled";
  error: string | null;
  cancel: () => void;
}

/** Rows of the list; the rest is counted. */
const MAX_ROWS = 50;

let lastId = 0;

/** Asks whether a file is replaced. For a folder, the answer holds for all of its files. */
async function confirmReplace(path: string, among: number): Promise<boolean> {
  const answers = await ask({
    title: among > 1 ? "Replace existing files?" : "Replace the file?",
    text:
      among > 1
        ? `This file exists already. The answer applies to all ${among} files of this upload.`
        : "A file of this name exists already.",
    sample: path,
    action: "Replace",
    danger: true,
  });
  return answers !== null;
}

/** Asks before a file is replaced. Returns false if the person does not want that. */
async function uploadOne(
  thread: string,
  path: string,
  file: File,
  mayReplace: () => Promise<boolean>,
  onProgress: (share: number) => void,
  signal: AbortSignal,
): Promise<boolean> {
  const attempt = (expected: Expected): Promise<void> =>
    uploadFile(thread, path, file, expected, onProgress, signal);
  try {
    await attempt({ is: "absent" });
    return true;
  } catch (error) {
    if (!(error instanceof Problem) || error.code !== "already_exists") throw error;
  }
  if (!(await mayReplace())) return false;
  await attempt({ is: "anything" });
  return true;
}

/** Uploads files into a directory, one after another. */
export function useUploads(thread: string, onDone: (path: string) => void) {
  const [uploads, setUploads] = useState<Upload[]>([]);
  const change = (id: number, changes: Partial<Upload>): void =>
    setUploads((before) => before.map((one) => (one.id === id ? { ...one, ...changes } : one)));
  const start = async (directory: string, items: readonly UploadItem[]): Promise<void> => {
    let replace: Promise<boolean> | null = null;
    const queued = items.map(({ path: below, file }) => {
      lastId += 1;
      const controller = new AbortController();
      const path = join(directory, below);
      const upload: Upload = {
        id: lastId,
        path,
        size: file.size,
        share: 0,
        state: "running",
        error: null,
        cancel: () => controller.abort(),
      };
      return { upload, file, signal: controller.signal };
    });
    setUploads((before) => [...before, ...queued.map(({ upload }) => upload)]);
    for (const { upload, file, signal } of queued) {
      try {
        signal.throwIfAborted();
        const done = await uploadOne(
          thread,
          upload.path,
          file,
          () => (replace ??= confirmReplace(upload.path, queued.length)),
          (share) => change(upload.id, { share }),
          signal,
        );
        change(upload.id, done ? { state: "done", share: 1 } : { state: "cancelled" });
        if (done) onDone(upload.path);
      } catch (error) {
        if (signal.aborted) change(upload.id, { state: "cancelled" });
        else change(upload.id, { state: "failed", error: describe(error) });
      }
    }
  };
  const clear = (): void => setUploads((before) => before.filter((one) => one.state === "running"));
  return { uploads, start, clear };
}

const STATES: Record<Upload["state"], string> = {
  running: "",
  done: "done",
  failed: "failed",
  cancelled: "cancelled",
};

/** The share of all bytes that was sent; empty files count a little. */
function shareOf(uploads: readonly Upload[]): number {
  const weight = (upload: Upload): number => upload.size + 1;
  const all = uploads.reduce((sum, upload) => sum + weight(upload), 0);
  const sent = uploads.reduce(
    (sum, upload) => sum + weight(upload) * (upload.state === "running" ? upload.share : 1),
    0,
  );
  return sent / all;
}

function cancelAll(uploads: readonly Upload[]): void {
  for (const upload of uploads) upload.cancel();
}

/** What a person wants to see first: what failed, then what runs. */
const URGENCY: Record<Upload["state"], number> = { failed: 0, running: 1, cancelled: 2, done: 3 };

export function UploadList({ uploads, clear }: { uploads: Upload[]; clear: () => void }) {
  if (uploads.length === 0) return null;
  const running = uploads.filter((upload) => upload.state === "running");
  const shown =
    uploads.length <= MAX_ROWS
      ? uploads
      : [...uploads].sort((a, b) => URGENCY[a.state] - URGENCY[b.state]).slice(0, MAX_ROWS);
  return (
    <section class="uploads" aria-label="Uploads">
      {uploads.length > 1 && (
        <div class="uploads-head">
          <span role="status">
            {uploads.length - running.length} of {uploads.length} uploads ended
          </span>
          {running.length > 0 && (
            <>
              <progress value={shareOf(uploads)} aria-label="All uploads" />
              <Button onClick={() => cancelAll(running)}>Cancel all</Button>
            </>
          )}
        </div>
      )}
      <ul>
        {shown.map((upload) => (
          <li key={upload.id} class={upload.state}>
            <span class="upload-name" title={upload.path}>
              {upload.path}
            </span>
            <span class="quiet-text">{bytes(upload.size)}</span>
            {upload.state === "running" ? (
              <>
                <progress value={upload.share} aria-label={`Upload of ${upload.path}`} />
                <Button onClick={upload.cancel} aria-label={`Cancel the upload of ${upload.path}`}>
                  Cancel
                </Button>
              </>
            ) : (
              <span role="status">{upload.error ?? STATES[upload.state]}</span>
            )}
          </li>
        ))}
        {shown.length < uploads.length && (
          <li class="quiet-text">and {uploads.length - shown.length} more</li>
        )}
      </ul>
      {running.length === 0 && <Button onClick={clear}>Clear</Button>}
    </section>
  );
}
