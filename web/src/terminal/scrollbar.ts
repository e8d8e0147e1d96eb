/**
 * Makes xterm move its scrollbar once a frame.
 *
 * It does so at every line that scrolls, with timers and styles, which takes more of a flood's time than drawing it.
 * The part is private: where it is not as expected, xterm stays as it is.
 */

import type { Terminal } from "@xterm/xterm";

interface Viewport {
  /** Without a line: to where the buffer is. */
  _sync?: (line?: number) => void;
}

export function calmScrollbar(terminal: Terminal): void {
  const viewport = (terminal as unknown as { _core?: { _viewport?: Viewport } })._core?._viewport;
  const sync = viewport?._sync?.bind(viewport);
  if (!viewport || !sync) return;
  let waiting = false;
  viewport._sync = (line) => {
    if (line !== undefined) return sync(line);
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      if (terminal.element?.isConnected) sync();
    });
  };
}
