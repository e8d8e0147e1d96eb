import { describe, expect, test } from "vitest";
import type { FileEntry } from "../../src/api/types.ts";
import { draftOf, hasDrafts, keepDraft } from "../../src/lib/drafts.ts";
import {
  directoriesAbove,
  imageType,
  join,
  nameOf,
  parentOf,
  rootOf,
  textOf,
  visibleRows,
} from "../../src/lib/file-tree.ts";

const entry = (path: string, type: FileEntry["type"] = "file"): FileEntry => ({
  path,
  name: nameOf(path),
  type,
  size: 1,
  modified_at: null,
  mode: null,
  target: null,
  etag: null,
});

describe("files", () => {
  test("have a name, a parent and a root", () => {
    expect(nameOf("/workspace/a.txt")).toBe("a.txt");
    expect(nameOf("/")).toBe("/");
    expect(parentOf("/workspace/a.txt")).toBe("/workspace");
    expect(parentOf("/etc")).toBe("/");
    expect(join("/", "etc")).toBe("/etc");
    expect(join("/a", "b")).toBe("/a/b");
    expect(rootOf("/memories/hot/x")).toBe("/memories/hot");
    expect(rootOf("/workspace2/x")).toBe("/");
    expect(directoriesAbove("/workspace/a/b/c")).toEqual(["/workspace", "/workspace/a", "/workspace/a/b"]);
    expect(directoriesAbove("/etc/hosts")).toEqual(["/", "/etc"]);
    expect(directoriesAbove("/workspace")).toEqual([]);
  });

  test("are rows of a tree, directories first, below what is expanded", () => {
    const listings = new Map([
      ["/workspace", [entry("/workspace/z.txt"), entry("/workspace/src", "directory")]],
      ["/workspace/src", [entry("/workspace/src/main.rs")]],
      ["/", [entry("/workspace", "directory"), entry("/etc", "directory")]],
    ]);
    const shown = (...expanded: string[]): string[] =>
      visibleRows(listings, new Set(expanded)).map((row) => `${row.level} ${row.path}`);
    const rest = ["1 /memories/persistent", "1 /memories/hot", "1 /"];
    expect(shown()).toEqual(["1 /workspace", ...rest]);
    expect(shown("/workspace", "/workspace/src")).toEqual([
      "1 /workspace",
      "2 /workspace/src",
      "3 /workspace/src/main.rs",
      "2 /workspace/z.txt",
      ...rest,
    ]);
    // Routes appear once, as roots.
    expect(shown("/")).toEqual(["1 /workspace", ...rest, "2 /etc"]);
  });

  test("are shown as text, as an image, or not at all", () => {
    expect(textOf(new TextEncoder().encode("\ufeffgrün\r\n"))).toBe("\ufeffgrün\r\n");
    expect(textOf(new Uint8Array([0x61, 0, 0x62]))).toBe(null);
    expect(textOf(new Uint8Array([0xff, 0xfe]))).toBe(null);
    expect(textOf(new Uint8Array())).toBe("");
    expect(imageType("a/Logo.PNG")).toBe("image/png");
    expect(imageType("png")).toBe(null);
  });

  test("keep what was typed until it is saved", () => {
    keepDraft("t", "/a", { text: "typed", etag: null });
    expect(draftOf("t", "/a")?.text).toBe("typed");
    expect(draftOf("u", "/a")).toBe(undefined);
    expect(hasDrafts()).toBe(true);
    keepDraft("t", "/a", undefined);
    expect(hasDrafts()).toBe(false);
  });
});
