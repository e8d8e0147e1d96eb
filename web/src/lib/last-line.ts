/** The last line of a screen or of an output. */

import { plainOf } from "./ansi.ts";

const MAX_CHARS = 300;

/** The last line of a text that is not blank, without the space around it. */
export function lastLine(screen: string): string {
  const line = screen.split("\n").findLast((one) => one.trim() !== "") ?? "";
  return line.trim().slice(0, MAX_CHARS);
}

/** The unfinished last line of a command's output, where a prompt is. Standard error comes first, as prompts do. */
export function promptOf({ stdout, stderr, truncated }: Output): string {
  // The end of a long output is not part of the receipt.
  if (truncated) return "";
  const unfinished = [stderr, stdout].map(
    (text) =>
      plainOf(text ?? "")
        .split("\n")
        .at(-1) ?? "",
  );
  return (unfinished.find((line) => line.trim() !== "") ?? "").trim().slice(0, MAX_CHARS);
}

interface Output {
  stdout?: string;
  stderr?: string;
  truncated?: boolean;
}
