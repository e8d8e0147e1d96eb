/** The resources of the API under the names of this SDK. Their fields come from the API document. */

import type { CamelKeys } from "./case.js";
import type { components } from "./schema.js";

type Schemas = components["schemas"];
type View<Name extends keyof Schemas> = CamelKeys<Schemas[Name]>;

/** A page of a list, and the cursor of the next page. */
export interface Page<T> {
  items: T[];
  nextCursor?: string | null;
}

/** Selects a page of a list. */
export interface PageOptions {
  /** Maximum number of items of a page; 100 by default, 1000 at most. */
  limit?: number | undefined;
  /** The `nextCursor` of the previous page; without one, the list starts at its beginning. */
  cursor?: string | undefined;
  signal?: AbortSignal | undefined;
}

/** What a command changed in its shell. */
export interface StateChanges {
  cwd: { from: string; to: string } | null;
  env: { set: Record<string, string>; unset: string[] };
}

/** How a command ended, or that it is running. */
export type CommandStatus = "running" | "finished" | "timed_out" | "cancelled" | "lost" | "not_started";

type Receipt = View<"CommandReceipt">;

/** The receipt of a command: how it ended, and the beginning of its output. */
export interface ExecResult
  extends Omit<Receipt, "status" | "stdout" | "stderr" | "exitCode" | "signal" | "changes"> {
  status: CommandStatus;
  /** Whether the command has finished with exit code 0. */
  ok: boolean;
  /** The exit code; null unless the command exited. */
  exitCode: number | null;
  /** The name of the signal that ended the command. */
  signal: string | null;
  /** Standard output as text. `stdoutBase64` has its exact bytes if they are not UTF-8. */
  stdout: string;
  /** Standard error as text. `stderrBase64` has its exact bytes if they are not UTF-8. */
  stderr: string;
  changes: StateChanges;
}

export type CommandInfo = View<"CommandView">;
export type FileInfo = Omit<View<"FileStat">, "type"> & { type: "file" | "directory" | "link" | "other" };
export type WrittenFile = View<"WrittenFile">;
export type SearchMatch = View<"SearchMatch">;
export type SearchResult = View<"SearchMatches">;
export type HandoffInfo = View<"HandoffView">;
export type LeaseInfo = View<"LeaseView">;
export type MessageInfo = View<"MessageView">;
export type PortLink = View<"PortLink">;
export type ProviderInfo = View<"ProviderView">;
export type SandboxInfo = View<"SandboxView">;
export type Screen = View<"ScreenSnapshot">;
export type SessionInfo = View<"SessionView">;
export type SnapshotInfo = View<"SnapshotView">;
export type TerminalInfo = View<"TerminalView">;
export type TerminalState = View<"TerminalStateView">;
export type ThreadInfo = View<"ThreadView">;
export type ThreadSummary = View<"ThreadRow">;
export type VersionDetail = View<"VersionDetail">;
export type VersionInfo = View<"VersionView">;
