/** Folders that are dropped on the page, and folders that are downloaded. */

import { listDirectory, readFile } from "../api/files.ts";
import type { FileEntry } from "../api/types.ts";
import { nameOf } from "../lib/file-tree.ts";
import { TAR_END, type TarEntry, tarHeader, tarPadding } from "../lib/tar.ts";
import { bytes } from "../lib/time.ts";

/** A file to upload, and its path below the folder it goes to. */
export interface UploadItem {
  path: string;
  file: File;
}

export const MAX_UPLOADS = 5000;
/** A downloaded folder is packed in the memory of the page. */
const MAX_DOWNLOAD_BYTES = 256 << 20;
const MAX_DOWNLOAD_FILES = 5000;

/** What a file picker returned. */
export const pickedItems = (files: FileList | null): UploadItem[] =>
  [...(files ?? [])].map((file) => ({ path: file.webkitRelativePath || file.name, file }));

const fileOf = (entry: FileSystemFileEntry): Promise<File> =>
  new Promise((resolve, reject) => entry.file(resolve, reject));

/** The entries of a directory, which the browser returns in parts. */
async function childrenOf(directory: FileSystemDirectoryEntry): Promise<FileSystemEntry[]> {
  const reader = directory.createReader();
  const all: FileSystemEntry[] = [];
  for (;;) {
    const some = await new Promise<FileSystemEntry[]>((resolve, reject) =>
      reader.readEntries(resolve, reject),
    );
    if (some.length === 0) return all;
    all.push(...some);
    if (all.length > MAX_UPLOADS) throw new TooMany();
  }
}

class TooMany extends Error {
  constructor() {
    super(`more than ${MAX_UPLOADS} files`);
  }
}

/** The files of a drop; folders are read with all that is in them. */
export async function droppedItems(data: DataTransfer): Promise<UploadItem[]> {
  // The items are gone once this task ends, so they are all taken first.
  const taken = [...data.items].map((item) => ({
    entry: item.webkitGetAsEntry?.() ?? null,
    file: item.getAsFile(),
  }));
  const found: UploadItem[] = [];
  const add = (item: UploadItem): void => {
    found.push(item);
    if (found.length > MAX_UPLOADS) throw new TooMany();
  };
  const walk = async (entry: FileSystemEntry, below: string): Promise<void> => {
    const path = below + entry.name;
    if (entry.isFile) add({ path, file: await fileOf(entry as FileSystemFileEntry) });
    else
      for (const child of await childrenOf(entry as FileSystemDirectoryEntry)) await walk(child, `${path}/`);
  };
  for (const { entry, file } of taken) {
    if (entry?.isDirectory) await walk(entry, "");
    else if (file) add({ path: file.name, file });
  }
  return found;
}

/** All files and directories below a directory, each directory before its entries. */
async function entriesBelow(thread: string, directory: string): Promise<FileEntry[]> {
  const found: FileEntry[] = [];
  let size = 0;
  const walk = async (at: string): Promise<void> => {
    for (const entry of await listDirectory(thread, at)) {
      // Links and devices are left out.
      if (entry.type !== "file" && entry.type !== "directory") continue;
      found.push(entry);
      size += entry.type === "file" ? entry.size : 0;
      if (found.length > MAX_DOWNLOAD_FILES) throw new Error(`it has more than ${MAX_DOWNLOAD_FILES} files`);
      if (size > MAX_DOWNLOAD_BYTES) throw new Error(`it is larger than ${bytes(MAX_DOWNLOAD_BYTES)}`);
      if (entry.type === "directory") await walk(entry.path);
    }
  };
  await walk(directory);
  return found;
}

/** Packs a folder as `.tar.gz`, and reports the share that is packed. */
export async function packFolder(
  thread: string,
  directory: string,
  onProgress: (share: number) => void,
  signal: AbortSignal,
): Promise<Blob> {
  const entries = await entriesBelow(thread, directory);
  const top = nameOf(directory) === "/" ? "sandbox" : nameOf(directory);
  const cut = directory === "/" ? 1 : directory.length + 1;
  const parts: BlobPart[] = tarHeader({
    name: `${top}/`,
    size: 0,
    modifiedAt: Date.now(),
    isExecutable: true,
  });
  for (const [index, entry] of entries.entries()) {
    signal.throwIfAborted();
    const below = `${top}/${entry.path.slice(cut)}`;
    const isDirectory = entry.type === "directory";
    const content = isDirectory ? new Uint8Array() : (await readFile(thread, entry.path)).bytes.slice();
    const about: TarEntry = {
      name: isDirectory ? `${below}/` : below,
      size: content.length,
      modifiedAt: entry.modified_at === null ? 0 : Date.parse(entry.modified_at),
      isExecutable: isExecutable(entry.mode),
    };
    parts.push(...tarHeader(about), content, tarPadding(content.length));
    onProgress((index + 1) / entries.length);
  }
  parts.push(TAR_END);
  return new Response(new Blob(parts).stream().pipeThrough(new CompressionStream("gzip"))).blob();
}

const isExecutable = (mode: FileEntry["mode"]): boolean =>
  mode !== null && (Number.parseInt(String(mode), 8) & 0o100) !== 0;

/** Lets the browser save a blob. */
export function saveBlob(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  // The browser has taken the blob when the click returns, but reads it later.
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
