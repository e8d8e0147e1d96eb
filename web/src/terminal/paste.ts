/** Makes pasted text safe to send. */

// An escape sequence in the text could end the bracketed paste.
const CONTROL = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]/g;
// Invisible characters that disguise a text: directions, joiners, tags.
const HIDDEN = /[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]/;

/** The text without control characters other than tab and line ends, and its number of lines. */
export function pasteText(text: string): { clean: string; lines: number } {
  const clean = text.replace(CONTROL, "");
  const ends = clean.match(/\r\n|\r|\n/g)?.length ?? 0;
  const open = /[\r\n]$/.test(clean) || clean === "" ? 0 : 1;
  return { clean, lines: ends + open };
}

/** When a paste of several lines is confirmed; `risky`: if the program would take each line as typed. */
export type PasteGuard = "always" | "risky" | "never";

/** Whether a paste has to be confirmed. `bracketed`: the program can tell a paste from typing. */
export function isGuarded(guard: PasteGuard, lines: number, bracketed: boolean): boolean {
  switch (guard) {
    case "always":
      return lines > 1;
    case "risky":
      return lines > 1 && !bracketed;
    case "never":
      return false;
  }
}

/** Whether the text has invisible control or direction characters. */
export function hasHiddenParts(text: string): boolean {
  return text.search(CONTROL) >= 0 || HIDDEN.test(text);
}
