/** Character widths from the table of the server's screen, so that both agree on the cursor's position. */

import type { IUnicodeVersionProvider } from "@xterm/xterm";
import { WIDTHS } from "../widths.ts";

/** Columns a code point takes. */
export function width(codePoint: number): 0 | 1 | 2 {
  if (codePoint < 0x300) return codePoint < 0x20 || (codePoint >= 0x7f && codePoint < 0xa0) ? 0 : 1;
  let low = 0;
  let high = WIDTHS.length - 1;
  while (low <= high) {
    const middle = (low + high) >> 1;
    const [first, last, columns] = WIDTHS[middle]!;
    if (codePoint < first) high = middle - 1;
    else if (codePoint > last) low = middle + 1;
    else return columns;
  }
  return 1;
}

/** xterm packs the width into bits 1 and 2 and whether to join the previous cell into bit 0. */
const widthOf = (properties: number): number => (properties >> 1) & 3;

export const steadUnicode: IUnicodeVersionProvider = {
  version: "stead",
  wcwidth: width,
  charProperties(codePoint, preceding) {
    const own = width(codePoint);
    const before = widthOf(preceding);
    const joins = own === 0 && preceding !== 0 && before !== 0;
    return ((joins ? Math.max(own, before) : own) << 1) | (joins ? 1 : 0);
  },
};
