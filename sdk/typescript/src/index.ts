/**
 * Client for Stead: durable shells and sandboxes for AI agents.
 *
 * Uses only web standards. `@stead/sdk/node` adds what needs Node: finding a local server, and directories.
 *
 * @packageDocumentation
 */

export { Stead } from "./client.js";
export { Command, Commands, type FollowOptions, type StdinOptions } from "./command.js";
export * from "./errors.js";
export type { EventsOptions, SteadEvent } from "./events.js";
export type {
  ExecEvent,
  ExecOptions,
  ExecStreamOptions,
  ExecTarget,
  StartedEvent,
  StartOptions,
} from "./exec.js";
export {
  type FileContent,
  type FileEvent,
  Files,
  type ListFilesOptions,
  type ReadOptions,
  type WriteOptions,
} from "./files.js";
export type { OutputChunk, OutputOptions } from "./follow.js";
export {
  type AnswerOptions,
  type AskOptions,
  type HandoffKind,
  type HandoffStatus,
  Handoffs,
} from "./handoff.js";
export { Listing } from "./listing.js";
export type { ExitEvent, GapEvent, OutputEvent, OutputName } from "./output.js";
export type { PortLinkOptions, Ports } from "./ports.js";
export {
  type CreateSandboxOptions,
  type ForkSandboxOptions,
  Sandbox,
  Sandboxes,
  type SandboxSettings,
  type SuspendOptions,
} from "./sandbox.js";
export type { components, paths } from "./schema.js";
export {
  type AttachOptions,
  Terminal,
  type TerminalEvent,
  Versions,
  type WaitCondition,
  type WaitOptions,
} from "./terminal.js";
export {
  type Policy,
  type TerminalOptions,
  Terminals,
  Thread,
  type ThreadOptions,
  Threads,
} from "./thread.js";
export type { CallOptions, ClientOptions, KeyedOptions } from "./transport.js";
export type * from "./types.js";
