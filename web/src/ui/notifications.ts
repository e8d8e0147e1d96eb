/** Messages to the person: from programs in terminals, and when something waits for a person. */

import { go } from "../lib/router.ts";
import { toast } from "./dialogs.tsx";

interface Notice {
  /** The terminal or thread it is about. */
  source: string;
  text: string;
  /** The view to show when the person opens it. */
  address?: string;
  /** A later notice with the same tag replaces this one. */
  tag?: string;
}

/** Shows a message in the page and, where the person allowed it and does not see the page, in the system. */
export function notify({ source, text, address, tag }: Notice): void {
  toast(`${source}: ${text}`);
  if (document.visibilityState === "visible" || !("Notification" in window)) return;
  if (Notification.permission !== "granted") return;
  const shown = new Notification(source, { body: text, icon: "/icon.svg", ...(tag && { tag }) });
  shown.onclick = () => {
    window.focus();
    if (address) go(address);
    shown.close();
  };
}
