/** Texts about versions of a terminal's state. */

/** The cause of a version; `commands` has the texts of commands by id. */
export function causeText(cause: unknown, commands: ReadonlyMap<string, string>): string {
  if (typeof cause === "string") return cause;
  if (typeof cause !== "object" || cause === null) return "";
  const { kind, command_id: command, to, version } = cause as Record<string, unknown>;
  switch (kind) {
    case "exec":
      return commands.get(String(command)) ?? "command";
    case "typed":
      return commands.get(String(command)) ?? "typed command";
    case "patch":
      return "environment changed";
    case "rollback":
      return `rollback to version ${String(to)}`;
    case "fork":
      return `fork of version ${String(version)}`;
    default:
      return String(kind ?? "");
  }
}
