/** Paths and kinds of files, and the rows of a tree of them. */

import type { FileEntry } from "../api/types.ts";

export const nameOf = (path: string): string => path.slice(path.lastIndexOf("/") + 1) || "/";

export const parentOf = (path: string): string => path.slice(0, path.lastIndexOf("/")) || "/";

export const join = (directory: string, name: string): string =>
  directory === "/" ? `/${name}` : `${directory}/${name}`;

/** Where a thread's files are. */
export const ROOTS: readonly { path: string; label: string }[] = [
  { path: "/workspace", label: "Workspace" },
  { path: "/memories/persistent", label: "Persistent memories" },
  { path: "/memories/hot", label: "Hot memories" },
  { path: "/", label: "Sandbox" },
];

/** The root that a path belongs to. */
export const rootOf = (path: string): string =>
  ROOTS.find((root) => path === root.path || path.startsWith(`${root.path}/`))?.path ?? "/";

/** The directories from the root of a path down to its parent. */
export function directoriesAbove(path: string): string[] {
  const root = rootOf(path);
  const above: string[] = [];
  for (let at = path; at !== root; ) {
    at = parentOf(at);
    above.unshift(at);
  }
  return above;
}

export interface TreeRow {
  path: string;
  label: string;
  /** From 1. */
  level: number;
  isDirectory: boolean;
  isExpanded: boolean;
  entry: FileEntry | null;
}

/** The children of the directories that were listed. */
export type Listings = ReadonlyMap<string, readonly FileEntry[]>;

const directoriesFirst = (a: FileEntry, b: FileEntry): number =>
  Number(b.type === "directory") - Number(a.type === "directory") || a.name.localeCompare(b.name);

/** The rows that are visible: each expanded directory is followed by its entries. */
export function visibleRows(listings: Listings, expanded: ReadonlySet<string>): TreeRow[] {
  const rows: TreeRow[] = [];
  const add = (path: string, level: number): void => {
    for (const entry of [...(listings.get(path) ?? [])].sort(directoriesFirst)) {
      // Routes are roots of their own.
      if (path === "/" && ["/workspace", "/memories"].includes(entry.path)) continue;
      const isDirectory = entry.type === "directory";
      const isExpanded = isDirectory && expanded.has(entry.path);
      rows.push({ path: entry.path, label: entry.name, level, isDirectory, isExpanded, entry });
      if (isExpanded) add(entry.path, level + 1);
    }
  };
  for (const { path, label } of ROOTS) {
    const isExpanded = expanded.has(path);
    rows.push({ path, label, level: 1, isDirectory: true, isExpanded, entry: null });
    if (isExpanded) add(path, 2);
  }
  return rows;
}

const IMAGES: Record<string, string> = {
  png: "image/png",
  jpg: "image/jpeg",
  jpeg: "image/jpeg",
  gif: "image/gif",
  webp: "image/webp",
  avif: "image/avif",
  bmp: "image/bmp",
  ico: "image/x-icon",
  svg: "image/svg+xml",
};

export const extensionOf = (name: string): string => /\.([^./]+)$/.exec(name)?.[1]?.toLowerCase() ?? "";

/** The media type of an image by its name; null if it is none. */
export const imageType = (name: string): string | null => IMAGES[extensionOf(name)] ?? null;

/** The text of a file; null if it is no text. */
export function textOf(bytes: Uint8Array): string | null {
  if (bytes.subarray(0, 8192).includes(0)) return null;
  try {
    // A byte order mark stays: saving must not change what was not edited.
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return null;
  }
}
