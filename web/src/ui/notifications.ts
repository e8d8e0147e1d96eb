/** Messages that a program in a terminal addresses to the person. */

import { toast } from "./dialogs.tsx";

/** Shows a message in the page and, where the person allowed it and does not see the page, in the system. */
export function notify(source: string, text: string): void {
  toast(`${source}: ${text}`);
  if (document.visibilityState === "visible" || !("Notification" in window)) return;
  if (Notification.permission === "granted") new Notification(source, { body: text, icon: "/icon.svg" });
}
