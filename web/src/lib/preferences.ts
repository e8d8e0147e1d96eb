/** Preferences of this browser, in its local storage. Nothing secret is in there. */

import { useEffect, useState } from "preact/hooks";

export interface NotifyPreferences {
  /** Requests of agents. */
  handoffs: boolean;
  /** Commands that wait for input. */
  waiting: boolean;
  /** Notifications that programs in terminals send. */
  programs: boolean;
}

export interface Preferences {
  /** The name that other viewers see. */
  name: string;
  theme: "system" | "light" | "dark";
  density: "comfortable" | "dense";
  fontSize: number;
  /** The font of terminals; empty for the system's. */
  fontFamily: string;
  /** The colours of terminals; `app` follows the theme. */
  terminalTheme: "app" | "light" | "dark" | "contrast";
  screenReader: boolean;
  scrollback: number;
  /** Whether a selection in a terminal is copied. */
  copyOnSelect: boolean;
  /** When a paste of several lines is confirmed; `risky`: if the program would run each line at once. */
  pasteGuard: "always" | "risky" | "never";
  /** Whether a replay skips idle time. */
  skipIdle: boolean;
  /** What the person is notified of. */
  notify: NotifyPreferences;
  /** Whether the side panel of a thread is open, and what it shows. */
  panel: boolean;
  panelTab: "timeline" | "status";
}

const KEY = "stead.preferences";
export const DEFAULTS: Preferences = {
  name: "browser",
  theme: "system",
  density: "comfortable",
  fontSize: 13,
  fontFamily: "",
  terminalTheme: "app",
  screenReader: false,
  scrollback: 10_000,
  copyOnSelect: false,
  pasteGuard: "risky",
  skipIdle: true,
  notify: { handoffs: true, waiting: true, programs: true },
  panel: true,
  panelTab: "timeline",
};

/** The name of a font, without characters that have a meaning in a style sheet. */
const fontName = (text: string): string =>
  text
    .replace(/[^\p{L}\p{N} ._-]/gu, "")
    .trim()
    .slice(0, 60);

/** Validates stored preferences; invalid values become defaults. */
export function validPreferences(stored: unknown): Preferences {
  const values = (typeof stored === "object" && stored !== null ? stored : {}) as Record<string, unknown>;
  const within = (value: unknown, low: number, high: number, otherwise: number): number =>
    typeof value === "number" && Number.isFinite(value)
      ? Math.min(high, Math.max(low, Math.round(value)))
      : otherwise;
  const oneOf = <T extends string>(value: unknown, options: readonly T[], otherwise: T): T =>
    options.find((option) => option === value) ?? otherwise;
  const notify = (typeof values.notify === "object" ? (values.notify ?? {}) : {}) as Record<string, unknown>;
  const name =
    typeof values.name === "string"
      ? values.name
          .replace(/\p{Cc}/gu, "")
          .trim()
          .slice(0, 40)
      : "";
  return {
    name: name || DEFAULTS.name,
    theme: oneOf(values.theme, ["system", "light", "dark"], DEFAULTS.theme),
    density: oneOf(values.density, ["comfortable", "dense"], DEFAULTS.density),
    fontSize: within(values.fontSize, 8, 32, DEFAULTS.fontSize),
    fontFamily: typeof values.fontFamily === "string" ? fontName(values.fontFamily) : DEFAULTS.fontFamily,
    terminalTheme: oneOf(values.terminalTheme, ["app", "light", "dark", "contrast"], DEFAULTS.terminalTheme),
    screenReader: values.screenReader === true,
    scrollback: within(values.scrollback, 0, 100_000, DEFAULTS.scrollback),
    copyOnSelect: values.copyOnSelect === true,
    pasteGuard: oneOf(values.pasteGuard, ["always", "risky", "never"], DEFAULTS.pasteGuard),
    skipIdle: values.skipIdle !== false,
    notify: {
      handoffs: notify.handoffs !== false,
      waiting: notify.waiting !== false,
      programs: notify.programs !== false,
    },
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
