/** The terminal's colours. In both themes the sixteen named colours have AA contrast on the background. */

import type { ITheme } from "@xterm/xterm";

const dark: ITheme = {
  background: "#131517",
  foreground: "#d9dcd8",
  cursor: "#7fd1b9",
  cursorAccent: "#131517",
  selectionBackground: "#3a5a52aa",
  black: "#2a2e31",
  red: "#f0877c",
  green: "#8fcf8a",
  yellow: "#e3c27a",
  blue: "#84b4f0",
  magenta: "#d29be0",
  cyan: "#78cbd0",
  white: "#c9cdc9",
  brightBlack: "#8a9196",
  brightRed: "#ff9f95",
  brightGreen: "#a9e3a4",
  brightYellow: "#f4d996",
  brightBlue: "#a3c9ff",
  brightMagenta: "#e6b6f2",
  brightCyan: "#97e2e6",
  brightWhite: "#f4f6f4",
  scrollbarSliderBackground: "#ffffff22",
  scrollbarSliderHoverBackground: "#ffffff44",
  scrollbarSliderActiveBackground: "#ffffff55",
};

const light: ITheme = {
  background: "#fbfbf9",
  foreground: "#24292b",
  cursor: "#1d6f5c",
  cursorAccent: "#fbfbf9",
  selectionBackground: "#9fd3c466",
  black: "#24292b",
  red: "#b3261e",
  green: "#2f6b2b",
  yellow: "#7a5900",
  blue: "#1c5bb0",
  magenta: "#8a2f9e",
  cyan: "#0e676d",
  white: "#5a6266",
  brightBlack: "#666d71",
  brightRed: "#c0342b",
  brightGreen: "#35732f",
  brightYellow: "#806000",
  brightBlue: "#2767c0",
  brightMagenta: "#963aab",
  brightCyan: "#14727a",
  brightWhite: "#3a4144",
  scrollbarSliderBackground: "#00000022",
  scrollbarSliderHoverBackground: "#00000044",
  scrollbarSliderActiveBackground: "#00000055",
};

const contrast: ITheme = {
  ...dark,
  background: "#000000",
  foreground: "#ffffff",
  cursor: "#ffffff",
  cursorAccent: "#000000",
  selectionBackground: "#ffffff55",
  black: "#000000",
  white: "#ffffff",
  brightBlack: "#b9c0c4",
  brightWhite: "#ffffff",
};

/** The colours for a preference; `app` follows the theme of the page. */
export function terminalTheme(choice: "app" | "light" | "dark" | "contrast", darkPage: boolean): ITheme {
  switch (choice) {
    case "app":
      return darkPage ? dark : light;
    case "light":
      return light;
    case "dark":
      return dark;
    case "contrast":
      return contrast;
  }
}

/** The colours of matches of a search. */
export const MATCH_COLOURS = {
  matchBackground: "#8a6d1f",
  matchOverviewRuler: "#c9a227",
  activeMatchBackground: "#c9a227",
  activeMatchColorOverviewRuler: "#ffffff",
};
