/** Notifications that programs send by OSC sequences. */

/** Longer texts are cut: a notification is a line or two. */
const MAX_TEXT_LENGTH = 240;

const clean = (text: string): string =>
  text
    .replace(/\p{Cc}+/gu, " ")
    .replace(/\s+/g, " ")
    .trim()
    .slice(0, MAX_TEXT_LENGTH);

/** The text of OSC 9 (iTerm2). Its subcommands (`9;4;…` is a progress bar) are no notifications. */
export const osc9Text = (data: string): string | null =>
  /^\d+(;|$)/.test(data) ? null : clean(data) || null;

/** The title and body of OSC 777 (rxvt-unicode): `notify;TITLE;BODY`. */
export function osc777Text(data: string): string | null {
  const [command, title = "", ...body] = data.split(";");
  if (command !== "notify") return null;
  return clean([title, body.join(";")].filter((part) => part !== "").join(": ")) || null;
}

/** The text of OSC 99 (kitty) where it comes in one plain piece: `METADATA;TEXT`. */
export function osc99Text(data: string): string | null {
  const [metadata = "", ...text] = data.split(";");
  const keys = new Map(metadata.split(":").map((part) => part.split("=") as [string, string | undefined]));
  const whole = (keys.get("d") ?? "1") === "1" && (keys.get("e") ?? "0") === "0";
  const readable = ["title", "body"].includes(keys.get("p") ?? "title");
  return whole && readable ? clean(text.join(";")) || null : null;
}

/** The text of a notification, by the number of its OSC. */
export const NOTIFICATIONS: readonly [number, (data: string) => string | null][] = [
  [9, osc9Text],
  [99, osc99Text],
  [777, osc777Text],
];
