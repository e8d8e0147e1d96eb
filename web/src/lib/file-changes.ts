/** What differs between two looks at a directory. */

import type { FileEntry } from "../api/types.ts";
import { parentOf } from "./file-tree.ts";

/** What was found below a directory. */
export interface Look {
  files: ReadonlyMap<string, FileEntry>;
  /** The directories, from the top one down, and whether their entries are among the files. */
  directories: ReadonlyMap<string, boolean>;
}

export interface FileChange {
  path: string;
  kind: "added" | "changed" | "removed";
  /** The text before and after; null if there was none, it was not read, or it is no text. */
  before: string | null;
  after: string | null;
}

/** The clocks of file systems are coarse. */
const CLOCK_MS = 10;

export const isPartial = (look: Look): boolean => [...look.directories.values()].includes(false);

const isSame = (a: FileEntry, b: FileEntry): boolean =>
  a.etag === b.etag && a.size === b.size && a.modified_at === b.modified_at;

/** Whether a look would have found a file at this path. */
function isCovered(look: Look, path: string): boolean {
  let directory = parentOf(path);
  while (!look.directories.has(directory) && directory !== "/") directory = parentOf(directory);
  return look.directories.get(directory) ?? false;
}

const change = (path: string, kind: FileChange["kind"]): FileChange => ({
  path,
  kind,
  before: null,
  after: null,
});

const byPath = (a: FileChange, b: FileChange): number => a.path.localeCompare(b.path);

export function differences(before: Look, after: Look): FileChange[] {
  const changes: FileChange[] = [];
  for (const [path, entry] of after.files) {
    const earlier = before.files.get(path);
    if (earlier ? !isSame(earlier, entry) : isCovered(before, path))
      changes.push(change(path, earlier ? "changed" : "added"));
  }
  for (const path of before.files.keys())
    if (!after.files.has(path) && isCovered(after, path)) changes.push(change(path, "removed"));
  return changes.sort(byPath);
}

/** The files that were written between two times, in milliseconds. */
export const changedIn = (look: Look, from: number, to: number): FileChange[] =>
  [...look.files.values()]
    .filter(({ modified_at: time }) => {
      const at = time === null ? Number.NaN : Date.parse(time);
      return at >= from - CLOCK_MS && at <= to + CLOCK_MS;
    })
    .map((entry) => change(entry.path, "changed"))
    .sort(byPath);
