/** The sections of a shell's state, as texts to compare. */

/** Sections that are shown elsewhere. */
const SHOWN_ELSEWHERE = new Set(["cwd", "env"]);

/** The sections as lines: some separate their entries by NUL, which is invisible. */
export function sectionsOf(sections: Record<string, string>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(sections)
      .filter(([name]) => !SHOWN_ELSEWHERE.has(name))
      .map(([name, text]) => [name, text.replaceAll("\0", "\n")]),
  );
}
