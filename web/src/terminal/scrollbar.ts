/**
 * Makes xterm update its scrollbar once per frame.
 *
 * It does so for every line that scrolls, with timers and styles, which costs more than drawing the line.
 * This uses a private member; where it is missing, xterm stays as it is.
 */

import type { Terminal } from "@xterm/xterm";

interface Viewport {
  /** Without a line: to the position of the buffer. */
  _sync?: (line?: number) => void;
}

export function throttleScrollbar(terminal: Terminal): void {
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
