/** How the program of a terminal ended, in words. */

export interface Exit {
  code: number | null;
  signal: number | string | null;
}

/** The end of a program and what it means: `exit 5` is the program's own choice, a signal is not. */
export function exitText({ code, signal }: Exit): string {
  if (signal !== null) return `The program was ended by signal ${signal}.`;
  if (code === null) return "The program ended; its exit code is unknown.";
  if (code === 0) return "The program ended normally (exit code 0).";
  return `The program ended with exit code ${code}.`;
}
