/** How this browser likes things. Kept in its storage; nothing secret is. */

import { useEffect, useState } from "preact/hooks";

export interface Preferences {
  /** What others see this browser as. */
  name: string;
  theme: "system" | "light" | "dark";
  fontSize: number;
  screenReader: boolean;
  scrollback: number;
  panel: boolean;
}

const KEY = "stead.preferences";
export const DEFAULTS: Preferences = {
  name: "browser",
  theme: "system",
  fontSize: 13,
  screenReader: false,
  scrollback: 10_000,
  panel: true,
};

/** Takes what is sound of what was stored. */
export function soundPreferences(stored: unknown): Preferences {
  const it = (typeof stored === "object" && stored !== null ? stored : {}) as Record<string, unknown>;
  const within = (value: unknown, low: number, high: number, otherwise: number): number =>
    typeof value === "number" && Number.isFinite(value)
      ? Math.min(high, Math.max(low, Math.round(value)))
      : otherwise;
  const theme = it.theme;
  const name =
    typeof it.name === "string"
      ? it.name
          .replace(/\p{Cc}/gu, "")
          .trim()
          .slice(0, 40)
      : "";
  return {
    name: name || DEFAULTS.name,
    theme: theme === "light" || theme === "dark" ? theme : DEFAULTS.theme,
    fontSize: within(it.fontSize, 8, 32, DEFAULTS.fontSize),
    screenReader: it.screenReader === true,
    scrollback: within(it.scrollback, 0, 100_000, DEFAULTS.scrollback),
    panel: it.panel !== false,
  };
}

function load(): Preferences {
  try {
    // A phone has no room for the panel until it is asked for.
    const roomy = matchMedia("(min-width: 761px)").matches;
    return soundPreferences({ panel: roomy, ...(JSON.parse(localStorage.getItem(KEY) ?? "{}") as object) });
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

/** Changes some and tells everyone. */
export function prefer(changes: Partial<Preferences>): void {
  current = soundPreferences({ ...preferences(), ...changes });
  try {
    localStorage.setItem(KEY, JSON.stringify(current));
  } catch {
    // Without storage they hold until the page is closed.
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

/** Whether the page is dark now, by preference or by the system. */
export function useDark(): boolean {
  const { theme } = usePreferences();
  const [system, setSystem] = useState(() => matchMedia("(prefers-color-scheme: dark)").matches);
  useEffect(() => {
    const query = matchMedia("(prefers-color-scheme: dark)");
    const look = (): void => setSystem(query.matches);
    query.addEventListener("change", look);
    return () => query.removeEventListener("change", look);
  }, []);
  return theme === "system" ? system : theme === "dark";
}
