/**
 * Bounds the work that a program can cause with few bytes.
 *
 * xterm repeats a scroll, an inserted line, a tab or a character as often as the sequence says, in one task:
 * `CSI 3000000 S` freezes the page for 25 seconds. More than a screenful has no further effect (the server's
 * screen stops there as well), so counts are clamped; and after many such sequences the parser waits for the
 * next frame.
 *
 * xterm's public handlers get a copy of the parameters, so this uses the private ones behind them. Where they
 * are missing, xterm stays as it is; `limits.test.ts` notices.
 */

import type { IFunctionIdentifier, Terminal } from "@xterm/xterm";

interface Parameters {
  params: Int32Array | number[];
}

interface Core {
  registerCsiHandler?(
    id: IFunctionIdentifier,
    handler: (parameters: Parameters) => boolean | Promise<boolean>,
  ): unknown;
}

/** Lines scrolled before the parser pauses: some 4 ms. */
const LINES_PER_FRAME = 1000;
/** Printing this many cells takes as long as scrolling one line. */
const CELLS_PER_LINE = 8;

/** Limits repeat counts in `terminal`; `nextFrame` settles when the page has been painted. */
export function limitCounts(terminal: Terminal, nextFrame: () => Promise<void>): void {
  const core = (terminal as unknown as { _core?: Core })._core;
  let spent = 0;
  const limit = (final: string, most: () => number, costPerCount: number): void => {
    core?.registerCsiHandler?.({ final }, ({ params }) => {
      const count = Math.min(params[0] || 1, most());
      params[0] = count;
      spent += count * costPerCount;
      // `false` continues with xterm's own handler.
      if (spent < LINES_PER_FRAME) return false;
      spent = 0;
      return nextFrame().then(() => false);
    });
  };
  // Scroll up and down, insert and delete lines.
  for (const final of ["S", "T", "L", "M"]) limit(final, () => terminal.rows, 1);
  // Forward and backward tabs.
  for (const final of ["I", "Z"]) limit(final, () => terminal.cols, 1 / CELLS_PER_LINE);
  // Repeat the preceding character.
  limit("b", () => terminal.cols * terminal.rows, 1 / CELLS_PER_LINE);
}
