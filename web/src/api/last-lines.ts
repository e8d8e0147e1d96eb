/**
 * The last line on the screen of a terminal, for an overview of many. No event reports output, so the screens
 * are read one after another, and only while the page is visible.
 */

import { useEffect, useState } from "preact/hooks";
import { lastLine } from "../lib/last-line.ts";
import { getText, path } from "./client.ts";

const READ_INTERVAL_MS = 2000;

type LineListener = (line: string) => void;

const listeners = new Map<string, Set<LineListener>>();
let reading = false;
/** Ends the pause between two rounds. */
let wake: () => void = () => {};

async function read(terminal: string): Promise<void> {
  const address = `${path("api", "terminals", terminal, "snapshot")}?format=text&scrollback=0`;
  const screen = await getText(address).catch(() => null);
  if (screen === null) return;
  for (const listener of listeners.get(terminal) ?? []) listener(lastLine(screen));
}

async function readWhileNeeded(): Promise<void> {
  if (reading) return;
  reading = true;
  while (listeners.size > 0) {
    for (const terminal of [...listeners.keys()]) {
      if (document.visibilityState === "visible" && listeners.has(terminal)) await read(terminal);
    }
    await new Promise<void>((resolve) => {
      wake = resolve;
      setTimeout(resolve, READ_INTERVAL_MS);
    });
  }
  reading = false;
}

function onLastLine(terminal: string, listener: LineListener): () => void {
  const others = listeners.get(terminal) ?? new Set();
  listeners.set(terminal, others.add(listener));
  wake();
  void readWhileNeeded();
  return () => {
    others.delete(listener);
    if (others.size === 0) listeners.delete(terminal);
  };
}

/** The last line on a terminal's screen; empty until it is known. */
export function useLastLine(terminal: string | undefined): string {
  const [line, setLine] = useState("");
  useEffect(() => (terminal === undefined ? undefined : onLastLine(terminal, setLine)), [terminal]);
  return line;
}
