/** The named parts of a shell's state, as texts to compare. */

/** Parts that other fields already tell. */
const TOLD = new Set(["cwd", "env"]);

/** A part as lines: some have NUL between their entries, which a person cannot see. */
export function sectionsOf(sections: Record<string, string>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(sections)
      .filter(([name]) => !TOLD.has(name))
      .map(([name, text]) => [name, text.replaceAll("\0", "\n")]),
  );
}
