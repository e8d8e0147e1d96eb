import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join as joinPath } from "node:path";
import { describe, expect, test } from "vitest";
import type { Problem } from "../../src/api/client.ts";
import type { FileEntry } from "../../src/api/types.ts";
import { draftOf, hasDrafts, keepDraft } from "../../src/lib/drafts.ts";
import { changedIn, differences, isPartial, type Look } from "../../src/lib/file-changes.ts";
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
import { labelsOf, sandboxRequest, secondsOf } from "../../src/lib/sandbox.ts";
import { TAR_END, tarHeader, tarPadding } from "../../src/lib/tar.ts";

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

  test("keep unsaved text", () => {
    keepDraft("t", "/a", { text: "typed", etag: null });
    expect(draftOf("t", "/a")?.text).toBe("typed");
    expect(draftOf("u", "/a")).toBe(undefined);
    expect(hasDrafts()).toBe(true);
    keepDraft("t", "/a", undefined);
    expect(hasDrafts()).toBe(false);
  });
});

describe("a sandbox", () => {
  test("has a lifetime in any unit", () => {
    for (const [text, seconds] of [
      ["90", 90],
      ["90s", 90],
      ["30m", 1800],
      ["1h 30m", 5400],
      ["2H", 7200],
      ["1d", 86_400],
    ] as const) {
      expect(secondsOf(text), text).toBe(seconds);
    }
    for (const bad of ["", "soon", "1.5h", "-1", "1h x", "1w"]) expect(secondsOf(bad), bad).toBe(null);
  });

  test("is requested with the entered values, and refused at the invalid field", () => {
    expect(labelsOf("team=web, empty=")).toEqual({ team: "web", empty: "" });
    expect(labelsOf("team")).toBe(null);
    expect(sandboxRequest({ name: " demo ", memory: "", on_timeout: "destroy" })).toEqual({ name: "demo" });
    expect(sandboxRequest({ timeout_s: "1h", on_timeout: "destroy", labels: "a=b" })).toEqual({
      timeout_s: 3600,
      on_timeout: "destroy",
      labels: { a: "b" },
    });
    try {
      sandboxRequest({ timeout_s: "soon" });
      expect.unreachable();
    } catch (error) {
      expect((error as Problem).errors[0]?.pointer).toBe("/timeout_s");
    }
  });
});

test("a tar archive can be unpacked, with names that are long or outside ASCII", () => {
  const entries = [
    { name: "top/", text: "" },
    { name: "top/plain.txt", text: "plain\n" },
    { name: `top/${"long-".repeat(40)}.txt`, text: "x".repeat(1000) },
    { name: "top/Größe 大.md", text: "é" },
  ];
  const parts = entries.flatMap(({ name, text }) => {
    const content = Buffer.from(text);
    const about = { name, size: content.length, modifiedAt: 1_700_000_000_000, isExecutable: false };
    return [...tarHeader(about), content, tarPadding(content.length)];
  });
  const into = mkdtempSync(joinPath(tmpdir(), "tar-"));
  try {
    execFileSync("tar", ["-x", "-C", into], { input: Buffer.concat([...parts, TAR_END]) });
    for (const { name, text } of entries.slice(1)) {
      expect(readFileSync(joinPath(into, name), "utf8")).toBe(text);
      expect(statSync(joinPath(into, name)).mtimeMs).toBe(1_700_000_000_000);
    }
  } finally {
    rmSync(into, { recursive: true });
  }
});

describe("two listings of a directory", () => {
  const look = (files: Record<string, string>, directories: Record<string, boolean>): Look => ({
    files: new Map(Object.entries(files).map(([path, etag]) => [path, { ...entry(path), etag }])),
    directories: new Map(Object.entries(directories)),
  });
  const found = (before: Look, after: Look): string[] =>
    differences(before, after).map(({ kind, path }) => `${kind} ${path}`);

  test("differ in added, changed and removed files", () => {
    const before = look({ "/w/a": "1", "/w/b": "1", "/w/c": "1" }, { "/w": true });
    const after = look({ "/w/a": "1", "/w/b": "2", "/w/new/d": "1" }, { "/w": true, "/w/new": true });
    expect(found(before, after)).toEqual(["changed /w/b", "removed /w/c", "added /w/new/d"]);
    expect(found(after, after)).toEqual([]);
  });

  test("are compared only in directories that both contain", () => {
    const some = look({ "/w/a": "1" }, { "/w": true, "/w/deep": false });
    const all = look({ "/w/a": "1", "/w/deep/b": "1" }, { "/w": true, "/w/deep": true });
    expect(found(some, all)).toEqual([]);
    expect(found(all, some)).toEqual([]);
    expect([isPartial(some), isPartial(all)]).toEqual([true, false]);
  });

  test("know which files were written during a command", () => {
    const at = (path: string, time: string): [string, FileEntry] => [
      path,
      { ...entry(path), modified_at: `2026-01-01T00:00:${time}Z` },
    ];
    const files = new Map([at("/w/early", "01"), at("/w/during", "05.5"), at("/w/late", "09")]);
    const from = Date.parse("2026-01-01T00:00:05Z");
    const written = changedIn({ files, directories: new Map() }, from, from + 1000);
    expect(written.map(({ path }) => path)).toEqual(["/w/during"]);
  });
});
