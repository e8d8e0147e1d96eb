/** Asks for permission to show notifications outside the page. */

import { useState } from "preact/hooks";
import { Button } from "./parts.tsx";

/** `quiet`: shows only the button, and only while the person has not decided. */
export function NotificationPermission({ quiet = false }: { quiet?: boolean }) {
  const supported = "Notification" in window;
  const [permission, setPermission] = useState(supported ? Notification.permission : "denied");
  if (!supported || (quiet && permission !== "default")) return null;
  if (permission === "granted") return <p class="quiet-text">System notifications are on.</p>;
  if (permission === "denied") {
    return (
      <p class="quiet-text">System notifications are blocked in the browser's settings for this site.</p>
    );
  }
  return (
    <Button onClick={() => Notification.requestPermission().then(setPermission)}>
      Turn on notifications
    </Button>
  );
}
