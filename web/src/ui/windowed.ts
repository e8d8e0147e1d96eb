/** Which rows of a long list are in view, so that only these are in the page. */

import type { RefObject } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

/** Shorter lists are rendered whole. */
export const MAX_WHOLE_ROWS = 100;
/** Rows that are rendered above and below the view. */
const MARGIN_ROWS = 20;

export interface RowWindow {
  /** The first row that is rendered, and the one after the last. */
  from: number;
  to: number;
  /** The height of the rows that are left out, in pixels. */
  above: number;
  below: number;
}

/** The rows that are visible in a box that is scrolled by `top` past the start of the list. */
export function rowsInView(count: number, height: number, top: number, boxHeight: number): RowWindow {
  if (count <= MAX_WHOLE_ROWS || height <= 0) return { from: 0, to: count, above: 0, below: 0 };
  // In steps, so that most scrolling changes nothing in the page.
  const step = MARGIN_ROWS / 2;
  const first = Math.floor(Math.max(0, top) / height / step) * step;
  const from = Math.max(0, Math.min(first - MARGIN_ROWS, count - 1));
  const to = Math.min(count, first + Math.ceil(boxHeight / height) + step + MARGIN_ROWS);
  return { from, to, above: from * height, below: (count - to) * height };
}

/** The rows to render of a list of `count` rows of the same height, which scrolls with its page. */
export function useRowWindow(count: number): {
  list: RefObject<HTMLTableSectionElement | null>;
  rows: RowWindow;
} {
  const list = useRef<HTMLTableSectionElement>(null);
  const [rows, setRows] = useState<RowWindow>(() => rowsInView(count, 48, 0, 1200));
  useLayoutEffect(() => {
    const box = list.current?.closest<HTMLElement>(".page");
    if (!box) return;
    const look = (): void => {
      const body = list.current;
      if (!body) return;
      const height = body.querySelector<HTMLElement>("tr:not(.left-out)")?.offsetHeight ?? 0;
      const top = box.getBoundingClientRect().top - body.getBoundingClientRect().top;
      const now = rowsInView(count, height, top, box.clientHeight);
      setRows((before) =>
        before.from === now.from && before.to === now.to && before.below === now.below ? before : now,
      );
    };
    look();
    box.addEventListener("scroll", look, { passive: true });
    addEventListener("resize", look);
    return () => {
      box.removeEventListener("scroll", look);
      removeEventListener("resize", look);
    };
  }, [count]);
  const to = Math.min(rows.to, count);
  return { list, rows: { ...rows, from: Math.min(rows.from, to), to: count <= MAX_WHOLE_ROWS ? count : to } };
}
