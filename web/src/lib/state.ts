/** The named parts of a shell's state, as texts. */

import type { Version } from "../api/types.ts";

/** Parts that other fields already tell. */
const TOLD = new Set(["cwd", "env"]);

/** By name; a part that is not text is named by its digest, so that a change still shows. */
export function sectionsOf(version: Version): Record<string, string> {
  const given = version.sections;
  const pairs: [string, unknown][] = Array.isArray(given)
    ? given.map((part: Record<string, unknown>) => [String(part["name"]), part["text"] ?? part["data"] ?? part["digest"]])
    : typeof given === "object" && given !== null
      ? Object.entries(given)
      : [];
  return Object.fromEntries(
    pairs
      .filter(([name]) => !TOLD.has(name))
      .map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value, null, 2)]),
  );
}
