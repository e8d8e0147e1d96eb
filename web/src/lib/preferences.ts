/** Preferences of this browser, in its local storage. Nothing secret is in there. */

import { useEffect, useState } from "preact/hooks";

export interface Preferences {
  /** The name that other viewers see. */
  name: string;
  theme: "system" | "light" | "dark";
  fontSize: number;
  screenReader: boolean;
  scrollback: number;
  /** Whether the side panel of a thread is open, and what it shows. */
  panel: boolean;
  panelTab: "timeline" | "status";
}

const KEY = "stead.preferences";
export const DEFAULTS: Preferences = {
  name: "browser",
  theme: "system",
  fontSize: 13,
  screenReader: false,
  scrollback: 10_000,
  panel: true,
  panelTab: "timeline",
};

/** Validates stored preferences; invalid values become defaults. */
export function validPreferences(stored: unknown): Preferences {
  const values = (typeof stored === "object" && stored !== null ? stored : {}) as Record<string, unknown>;
  const within = (value: unknown, low: number, high: number, otherwise: number): number =>
    typeof value === "number" && Number.isFinite(value)
      ? Math.min(high, Math.max(low, Math.round(value)))
      : otherwise;
  const theme = values.theme;
  const name =
    typeof values.name === "string"
      ? values.name
          .replace(/\p{Cc}/gu, "")
          .trim()
          .slice(0, 40)
      : "";
  return {
    name: name || DEFAULTS.name,
    theme: theme === "light" || theme === "dark" ? theme : DEFAULTS.theme,
    fontSize: within(values.fontSize, 8, 32, DEFAULTS.fontSize),
    screenReader: values.screenReader === true,
    scrollback: within(values.scrollback, 0, 100_000, DEFAULTS.scrollback),
    panel: values.panel !== false,
    panelTab: values.panelTab === "status" ? "status" : DEFAULTS.panelTab,
  };
}

function load(): Preferences {
  try {
    // On a phone the panel is closed by default.
    const roomy = matchMedia("(min-width: 761px)").matches;
    return validPreferences({ panel: roomy, ...(JSON.parse(localStorage.getItem(KEY) ?? "{}") as object) });
  } catch {
    return { ...DEFAULTS };
  }
}

let current: Preferences | null = null;
const watchers = new Set<(preferences: Preferences) => void>();

export function preferences(): Preferences {
  current ??= load();
  return current;
}

/** Changes preferences and notifies the components that use them. */
export function prefer(changes: Partial<Preferences>): void {
  current = validPreferences({ ...preferences(), ...changes });
  try {
    localStorage.setItem(KEY, JSON.stringify(current));
  } catch {
    // Without storage they last until the page is closed.
  }
  for (const watcher of watchers) watcher(current);
}

export function usePreferences(): Preferences {
  const [held, setHeld] = useState(preferences);
  useEffect(() => {
    watchers.add(setHeld);
    return () => void watchers.delete(setHeld);
  }, []);
  return held;
}

/** Whether the page is dark, by preference or by the system. */
export function useDark(): boolean {
  const { theme } = usePreferences();
  const [system, setSystem] = useState(() => matchMedia("(prefers-color-scheme: dark)").matches);
  useEffect(() => {
    const query = matchMedia("(prefers-color-scheme: dark)");
    const update = (): void => setSystem(query.matches);
    query.addEventListener("change", update);
    return () => query.removeEventListener("change", update);
  }, []);
  return theme === "system" ? system : theme === "dark";
}
