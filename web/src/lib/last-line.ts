/** The last line of a screen. */

const MAX_CHARS = 300;

/** The last line of a text that is not blank, without the space around it. */
export function lastLine(screen: string): string {
  const line = screen.split("\n").findLast((one) => one.trim() !== "") ?? "";
  return line.trim().slice(0, MAX_CHARS);
}
