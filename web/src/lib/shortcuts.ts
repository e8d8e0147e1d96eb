/** The keyboard shortcuts of the app. */

export interface Shortcut {
  /** Keys pressed together; several entries are alternatives. */
  keys: string[][];
  does: string;
}

export interface ShortcutGroup {
  title: string;
  shortcuts: Shortcut[];
}

export const SHORTCUTS: readonly ShortcutGroup[] = [
  {
    title: "Everywhere",
    shortcuts: [
      { keys: [["Ctrl", "K"]], does: "Search threads, commands and output, and run a command of the app" },
      { keys: [["?"], ["Ctrl", "Shift", "?"]], does: "Show these shortcuts; the second works in a terminal" },
      { keys: [["Ctrl", "Shift", "Esc"]], does: "Move the focus out of the terminal" },
    ],
  },
  {
    title: "Terminal",
    shortcuts: [
      { keys: [["Ctrl", "Shift", "F"]], does: "Search the scrollback" },
      { keys: [["Ctrl", "Shift", "C"]], does: "Copy the selection" },
      { keys: [["Ctrl", "V"]], does: "Paste" },
      {
        keys: [
          ["Ctrl", "Shift", "←"],
          ["Ctrl", "Shift", "→"],
        ],
        does: "Go to the previous or next terminal side by side",
      },
      { keys: [["Enter"], ["Shift", "Enter"]], does: "In a search: previous or next match" },
    ],
  },
  {
    title: "Command box",
    shortcuts: [
      { keys: [["Enter"]], does: "Run the command" },
      { keys: [["Shift", "Enter"]], does: "Start another line" },
      { keys: [["↑"], ["↓"]], does: "Recall earlier commands" },
    ],
  },
  {
    title: "Replay",
    shortcuts: [
      { keys: [["Space"]], does: "Play or pause" },
      { keys: [["←"], ["→"]], does: "Back or forward by 5 seconds" },
      { keys: [["["], ["]"]], does: "Previous or next command" },
    ],
  },
];

/** Whether a key press asks for the shortcuts. In a field, `?` is text. */
export function asksForShortcuts(
  event: Pick<KeyboardEvent, "key" | "code" | "ctrlKey" | "shiftKey" | "metaKey" | "altKey">,
  place: "field" | "page",
): boolean {
  if (event.metaKey || event.altKey) return false;
  if (event.ctrlKey) return event.shiftKey && (event.code === "Slash" || event.key === "?");
  return place === "page" && event.key === "?";
}
