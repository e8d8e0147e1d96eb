/** Messages, commands and hand-offs of a thread in one order. */

import type { Command, Handoff, LastCommand, Message } from "../api/types.ts";
import { threadAddress } from "./router.ts";

export type Entry =
  | { kind: "message"; at: string; key: string; message: Message }
  | { kind: "command"; at: string; key: string; command: Command }
  | { kind: "handoff"; at: string; key: string; handoff: Handoff };

/** When a command began, or ended if that is all that is known. */
export const beganAt = (command: Command): string =>
  command.started_at ?? command.created_at ?? command.finished_at ?? "";

/** The replay at the end of a command. */
export function replayAddress(thread: string, command: Command): string {
  const { terminal_id: terminal, offset_end: offset } = command;
  const at = command.finished_at ?? beganAt(command);
  return threadAddress(thread, "replay", {
    terminal,
    at,
    ...(typeof offset === "number" && { offset: String(offset) }),
  });
}

/** Oldest first; entries without a time come first. */
export function timeline(
  messages: readonly Message[],
  commands: readonly Command[],
  handoffs: readonly Handoff[] = [],
): Entry[] {
  const entries: Entry[] = [
    ...messages.map(
      (message, index): Entry => ({
        kind: "message",
        at: message.at ?? "",
        key: `m${message.message_id ?? index}`,
        message,
      }),
    ),
    ...commands.map(
      (command): Entry => ({ kind: "command", at: beganAt(command), key: command.command_id, command }),
    ),
    ...handoffs.map(
      (handoff): Entry => ({ kind: "handoff", at: handoff.created_at, key: handoff.handoff_id, handoff }),
    ),
  ];
  const time = (entry: Entry): number => Date.parse(entry.at) || 0;
  return entries
    .map((entry, index) => ({ entry, index }))
    .sort((a, b) => time(a.entry) - time(b.entry) || a.index - b.index)
    .map(({ entry }) => entry);
}

/** A message's content as text, whatever its shape. */
export function contentText(content: unknown): string {
  if (typeof content === "string") return content;
  if (Array.isArray(content)) return content.map(contentText).join("\n");
  if (typeof content === "object" && content !== null && "text" in content) return contentText(content.text);
  return JSON.stringify(content, null, 2) ?? "";
}

export interface Filter {
  text: string;
  only: "all" | "messages" | "commands" | "failed";
}

/** Whether an entry matches the filter. */
export function matches(entry: Entry, filter: Filter): boolean {
  if (filter.only === "messages" && entry.kind === "command") return false;
  if (filter.only === "commands" && entry.kind !== "command") return false;
  if (filter.only === "failed" && !(entry.kind === "command" && hasFailed(entry.command))) return false;
  const text = filter.text.trim().toLowerCase();
  if (text === "") return true;
  return searchedText(entry).toLowerCase().includes(text);
}

function searchedText(entry: Entry): string {
  switch (entry.kind) {
    case "message":
      return contentText(entry.message.content);
    case "command":
      return [entry.command.command, entry.command.stdout, entry.command.stderr, entry.command.cwd].join(
        "\n",
      );
    case "handoff":
      return [entry.handoff.reason, entry.handoff.answer?.option, entry.handoff.answer?.text].join("\n");
  }
}

/** Whether a command ended without success. */
export const hasFailed = (command: Command): boolean =>
  !isUnfinished(command) && (command.timed_out === true || command.exit_code !== 0);

/** Whether a command is queued or running. */
export const isUnfinished = (command: { status: string }): boolean =>
  command.status === "running" || command.status === "queued";

/** The command that a terminal runs, else the first in its queue, else the last one that ended. */
export function latestOf(commands: readonly Command[]): Command | undefined {
  const latestFirst = [...commands].sort((a, b) => Date.parse(beganAt(b)) - Date.parse(beganAt(a)));
  return (
    latestFirst.find((command) => command.status === "running") ??
    latestFirst.findLast((command) => command.status === "queued") ??
    latestFirst[0]
  );
}

/**
 * Commands with those that run. A list of commands may lack them: a command whose caller waits for its end is
 * stored when it ends.
 */
export const withCurrent = (commands: readonly Command[], current: readonly LastCommand[]): Command[] =>
  current.reduceRight(withOne, [...commands]);

function withOne(commands: readonly Command[], current: LastCommand): Command[] {
  const { command_id, terminal_id, command, status, waiting_for_input, started_at } = current;
  const live = { status, waiting_for_input, ...(started_at !== null && { started_at }) };
  if (commands.some((one) => one.command_id === command_id))
    return commands.map((one) => (one.command_id === command_id ? { ...one, ...live } : one));
  const running: Command = {
    command_id,
    terminal_id,
    command,
    exit_code: null,
    signal: null,
    stdout_bytes: 0,
    stderr_bytes: 0,
    duration_ms: null,
    ...(started_at !== null && { created_at: started_at }),
    ...live,
  };
  return [running, ...commands];
}

/** How a command ended or what it does, as a text and a tone. */
export function outcome(command: Command): { text: string; tone: "good" | "bad" | "warn" | "busy" } {
  if (isUnfinished(command)) {
    return { text: command.waiting_for_input ? "waiting for input" : command.status, tone: "busy" };
  }
  if (command.timed_out || command.status === "timed_out") return { text: "timed out", tone: "bad" };
  if (command.status === "cancelled") return { text: "cancelled", tone: "warn" };
  if (command.status === "lost" || command.status === "not_started") {
    return { text: command.status.replace("_", " "), tone: "warn" };
  }
  if (command.signal !== null && command.signal !== undefined)
    return { text: `signal ${command.signal}`, tone: "bad" };
  if (command.exit_code === null || command.exit_code === undefined)
    return { text: command.status, tone: "warn" };
  return { text: `exit ${command.exit_code}`, tone: command.exit_code === 0 ? "good" : "bad" };
}
