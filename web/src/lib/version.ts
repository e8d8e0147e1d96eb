/** Texts about versions of a terminal's state. */

import type { Command, Version } from "../api/types.ts";

/** The command that made a version: the one the version names, else the first that ended with it. */
function commandOf(version: Version, id: unknown, commands: readonly Command[]): string | undefined {
  const named = commands.find((command) => command.command_id === id);
  const ended = commands
    .filter((command) => command.version === version.version)
    .sort((a, b) => (a.created_at ?? "").localeCompare(b.created_at ?? ""));
  return (named ?? ended[0])?.command;
}

/** The cause of a version, which may be one of the terminal's `commands`. */
export function causeText(version: Version, commands: readonly Command[]): string {
  const { cause } = version;
  if (typeof cause === "string") return cause;
  if (typeof cause !== "object" || cause === null) return "";
  const { kind, command_id: id, to, version: from } = cause as Record<string, unknown>;
  switch (kind) {
    case "exec":
      return commandOf(version, id, commands) ?? "command";
    case "typed":
      return commandOf(version, id, commands) ?? "typed command";
    case "patch":
      return "environment changed";
    case "rollback":
      return `rollback to version ${String(to)}`;
    case "fork":
      return `fork of version ${String(from)}`;
    default:
      return String(kind ?? "");
  }
}
