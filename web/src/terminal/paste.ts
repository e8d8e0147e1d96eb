/** Makes a pasted text safe to type. */

// An escape would let the text end the bracketed paste and go on as typing.
const CONTROL = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]/g;
// Characters that make a text look other than it is: directions, joiners, tags.
const HIDDEN = /[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]/;

/** The text without control characters but tab and line ends, and how many lines it would enter. */
export function pasteText(text: string): { clean: string; lines: number } {
  const clean = text.replace(CONTROL, "");
  const ends = clean.match(/\r\n|\r|\n/g)?.length ?? 0;
  const open = /[\r\n]$/.test(clean) || clean === "" ? 0 : 1;
  return { clean, lines: ends + open };
}

/** Whether the text holds control or direction characters that a person does not see. */
export function hasHiddenParts(text: string): boolean {
  return text.search(CONTROL) >= 0 || HIDDEN.test(text);
}
