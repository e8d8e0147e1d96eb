/** The search of the command palette. */

export interface Action {
  title: string;
  hint?: string;
  run(): void;
}

/** Rates how well a title matches: lower is better, null if its letters do not occur in that order. */
export function score(typed: string, title: string): number | null {
  const wanted = typed.toLowerCase().replace(/\s+/g, "");
  const text = title.toLowerCase();
  if (wanted === "") return 0;
  const whole = text.indexOf(typed.trim().toLowerCase());
  if (whole >= 0) return whole === 0 || text[whole - 1] === " " ? whole / 1000 : 1 + whole / 1000;
  let at = -1;
  let gaps = 0;
  for (const letter of wanted) {
    const next = text.indexOf(letter, at + 1);
    if (next < 0) return null;
    if (at >= 0) gaps += next - at - 1;
    at = next;
  }
  return 2 + gaps;
}

/** The actions that match, best first. */
export function find(typed: string, actions: readonly Action[]): Action[] {
  return actions
    .map((action, index) => ({ action, index, score: score(typed, action.title) }))
    .filter((one): one is { action: Action; index: number; score: number } => one.score !== null)
    .sort((a, b) => a.score - b.score || a.index - b.index)
    .map(({ action }) => action);
}
