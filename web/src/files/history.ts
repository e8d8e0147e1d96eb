/**
 * What the last command changed in the workspace. The server keeps no earlier contents, so the page reads the texts
 * of the workspace when a person opens its files, and compares them after each command.
 */

import { get, list, path } from "../api/client.ts";
import { onEvent } from "../api/events.ts";
import { listDirectory, readFile } from "../api/files.ts";
import type { Command, FileEntry, Thread } from "../api/types.ts";
import { changedIn, differences, type FileChange, isPartial, type Look } from "../lib/file-changes.ts";
import { textOf } from "../lib/file-tree.ts";
import { routeOf } from "../lib/router.ts";

const WORKSPACE = "/workspace";
/** Directories that programs fill and people do not read. */
const SKIPPED = new Set([".cache", ".git", ".venv", "__pycache__", "node_modules", "target", "venv"]);
const MAX_FILES = 2000;
const MAX_DIRECTORIES = 300;
const MAX_TEXTS = 300;
const MAX_TEXT_BYTES = 128 << 10;
const PARALLEL = 6;

export interface LastChanges {
  command: string;
  files: FileChange[];
  /** Whether the texts from before the command are known. */
  isCompared: boolean;
  /** Whether the workspace has more files than are compared. */
  isPartial: boolean;
}

/** Runs `act` for each item, a few at a time. */
async function each<T>(items: readonly T[], act: (item: T) => Promise<void>): Promise<void> {
  const left = [...items];
  const work = async (): Promise<void> => {
    for (let next = left.shift(); next !== undefined; next = left.shift()) await act(next);
  };
  await Promise.all(Array.from({ length: PARALLEL }, work));
}

interface Ended {
  command: string;
  terminal: string | null;
}

/** How many commands of a terminal may have been started since one ended. */
const MAX_LATER_COMMANDS = 50;

async function textOfCommand({ command, terminal }: Ended): Promise<string> {
  if (terminal === null) return command;
  const address = `${path("api", "terminals", terminal, "commands")}?limit=${MAX_LATER_COMMANDS}`;
  const latest = await list<Command>(address, MAX_LATER_COMMANDS);
  return latest.find((one) => one.command_id === command)?.command ?? command;
}

class FileHistory {
  readonly thread: string;
  /** The workspace at the last look; null before the first. */
  #known: Look | null = null;
  #texts = new Map<string, string | null>();
  readonly #running = new Set<string>();
  #last: LastChanges | null = null;
  readonly #listeners = new Set<() => void>();
  readonly #unsubscribe: () => void;
  #isBusy = false;
  /** What the next look is for: the latest command that ended, or changes by others. */
  #wanted: { ended: Ended | null } | null = { ended: null };

  constructor(thread: string) {
    this.thread = thread;
    this.#unsubscribe = onEvent((event) => {
      const shown = routeOf(location.pathname);
      if (shown.view !== "thread" || shown.thread !== thread) return close(this);
      if (event.thread !== thread || event.command === null) return;
      if (event.name === "command_started") this.#running.add(event.command);
      if (event.name !== "command_ended") return;
      this.#running.delete(event.command);
      this.#wanted = { ended: { command: event.command, terminal: event.terminal } };
      void this.#work();
    });
    void this.#work();
  }

  get last(): LastChanges | null {
    return this.#last;
  }

  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Files changed. What a command that runs has to do with it is known once it has ended. */
  changed(): void {
    if (this.#running.size > 0) return;
    this.#wanted ??= { ended: null };
    void this.#work();
  }

  stop(): void {
    this.#unsubscribe();
    this.#listeners.clear();
  }

  /** Looks as long as something is wanted. Commands that end meanwhile are looked at together. */
  async #work(): Promise<void> {
    if (this.#isBusy) return;
    this.#isBusy = true;
    for (let next = this.#wanted; next !== null; next = this.#wanted) {
      this.#wanted = null;
      await (this.#known === null ? this.#begin() : this.#compare(next.ended)).catch(() => {});
    }
    this.#isBusy = false;
  }

  #show(last: LastChanges): void {
    this.#last = last;
    for (const listener of this.#listeners) listener();
  }

  /** Of a command that ended before the first look, only the times of the files say what it changed. */
  async #begin(): Promise<void> {
    const about = await get<Thread>(path("api", "threads", this.thread));
    for (const { command_id: id } of about.current_commands ?? []) this.#running.add(id);
    const known = await walk(this.thread);
    await this.#read(known);
    this.#known = known;
    const last = about.last_command;
    if (!last?.started_at || !last.finished_at) return;
    const files = changedIn(known, Date.parse(last.started_at), Date.parse(last.finished_at));
    this.#show({ command: last.command, files, isCompared: false, isPartial: isPartial(known) });
  }

  async #compare(ended: Ended | null): Promise<void> {
    const before = this.#known!;
    const after = await walk(this.thread);
    const files = differences(before, after);
    for (const change of files) {
      change.before = this.#texts.get(change.path) ?? null;
      this.#texts.delete(change.path);
    }
    await this.#read(after);
    this.#known = after;
    if (ended === null) return;
    for (const change of files) change.after = this.#texts.get(change.path) ?? null;
    this.#show({ command: await textOfCommand(ended), files, isCompared: true, isPartial: isPartial(after) });
  }

  /** Reads the texts that are not known yet. */
  async #read(look: Look): Promise<void> {
    const unread = [...look.files.values()].filter(
      (entry) => entry.size <= MAX_TEXT_BYTES && !this.#texts.has(entry.path),
    );
    await each(unread.slice(0, Math.max(0, MAX_TEXTS - this.#texts.size)), async (entry) => {
      const read = await readFile(this.thread, entry.path).catch(() => null);
      this.#texts.set(entry.path, read && textOf(read.bytes));
    });
  }
}

/** Lists the workspace, level by level, up to a number of files. */
async function walk(thread: string): Promise<Look> {
  const files = new Map<string, FileEntry>();
  const directories = new Map<string, boolean>([[WORKSPACE, false]]);
  let level = [WORKSPACE];
  while (level.length > 0 && files.size < MAX_FILES && directories.size <= MAX_DIRECTORIES) {
    const below: string[] = [];
    await each(level, async (directory) => {
      for (const entry of await listDirectory(thread, directory)) {
        if (entry.type === "file") files.set(entry.path, entry);
        else if (entry.type === "directory" && !SKIPPED.has(entry.name)) below.push(entry.path);
      }
      directories.set(directory, true);
    });
    for (const directory of below) directories.set(directory, false);
    level = below;
  }
  return { files, directories };
}

let current: FileHistory | null = null;

function close(history: FileHistory): void {
  history.stop();
  if (current === history) current = null;
}

/** The history of a thread, which lasts as long as its page is open. */
export function fileHistory(thread: string): FileHistory {
  if (current?.thread !== thread) {
    if (current) close(current);
    current = new FileHistory(thread);
  }
  return current;
}
