/** Texts about versions of a terminal's state. */

import type { Command, Version } from "../api/types.ts";

/** The command that made a version: the one the version names, else the first that ended with it. */
export function commandOf(version: Version, commands: readonly Command[]): Command | undefined {
  const { kind, command_id: id } = fieldsOf(version.cause);
  if (kind !== "exec" && kind !== "typed") return undefined;
  const named = commands.find((command) => command.command_id === id);
  const ended = commands
    .filter((command) => command.version === version.version)
    .sort((a, b) => (a.created_at ?? "").localeCompare(b.created_at ?? ""));
  return named ?? ended[0];
}

const fieldsOf = (cause: unknown): Record<string, unknown> =>
  typeof cause === "object" && cause !== null ? (cause as Record<string, unknown>) : {};

/** The cause of a version, which may be one of the terminal's `commands`. */
export function causeText(version: Version, commands: readonly Command[]): string {
  const { cause } = version;
  if (typeof cause === "string") return cause;
  const { kind, to, version: from } = fieldsOf(cause);
  switch (kind) {
    case "exec":
      return commandOf(version, commands)?.command ?? "command";
    case "typed":
      return commandOf(version, commands)?.command ?? "typed command";
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
