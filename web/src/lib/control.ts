/** Who has control of the terminals in the page, so that other parts of it can take and release control. */

import { useEffect, useState } from "preact/hooks";

export interface Control {
  /** Whether this page has control; the name of the client that has it, if another one does. */
  mine: boolean;
  driver: string | null;
  /** Whether control can be taken: the terminal is connected. */
  ready: boolean;
  take(): void;
  release(): void;
}

const controls = new Map<string, Control>();
const listeners = new Set<() => void>();

/** Sets the control of a terminal; null when it leaves the page. */
export function setControl(terminal: string, control: Control | null): void {
  if (control === null) controls.delete(terminal);
  else controls.set(terminal, control);
  for (const listener of listeners) listener();
}

/** The control of a terminal; null if the terminal is not in the page. */
export function useControl(terminal: string): Control | null {
  const [control, setCurrent] = useState(() => controls.get(terminal) ?? null);
  useEffect(() => {
    const update = (): void => setCurrent(controls.get(terminal) ?? null);
    update();
    listeners.add(update);
    return () => void listeners.delete(update);
  }, [terminal]);
  return control;
}
