/** Uploads of files, with their progress. */

import { useState } from "preact/hooks";
import { describe, Problem } from "../api/client.ts";
import { type Expected, uploadFile } from "../api/files.ts";
import { join } from "../lib/file-tree.ts";
import { bytes } from "../lib/time.ts";
import { ask } from "../ui/dialogs.tsx";
import { Button } from "../ui/parts.tsx";

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

let lastId = 0;

/** Asks before a file is replaced. Returns false if the person does not want that. */
async function uploadOne(
  thread: string,
  path: string,
  file: File,
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
  const yes = await ask({
    title: "Replace the file?",
    text: "A file of this name exists already.",
    sample: path,
    action: "Replace",
    danger: true,
  });
  if (!yes) return false;
  await attempt({ is: "anything" });
  return true;
}

/** Uploads files into a directory, one after another. */
export function useUploads(thread: string, onDone: (path: string) => void) {
  const [uploads, setUploads] = useState<Upload[]>([]);
  const change = (id: number, changes: Partial<Upload>): void =>
    setUploads((before) => before.map((one) => (one.id === id ? { ...one, ...changes } : one)));
  const start = async (directory: string, files: readonly File[]): Promise<void> => {
    const queued = files.map((file) => {
      lastId += 1;
      const controller = new AbortController();
      const path = join(directory, file.name);
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

export function UploadList({ uploads, clear }: { uploads: Upload[]; clear: () => void }) {
  if (uploads.length === 0) return null;
  return (
    <section class="uploads" aria-label="Uploads">
      <ul>
        {uploads.map((upload) => (
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
      </ul>
      {uploads.every((upload) => upload.state !== "running") && <Button onClick={clear}>Clear</Button>}
    </section>
  );
}
