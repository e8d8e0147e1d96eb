/** The state of a terminal's connection, over its screen; nothing while it is connected. */

import type { Link } from "../protocol/socket.ts";
import { Button, useNow } from "../ui/parts.tsx";

interface Props {
  link: Link;
  paused: boolean;
  retry: () => void;
  resume: (() => Promise<unknown>) | undefined;
}

export function LinkState({ link, paused, retry, resume }: Props) {
  const now = useNow(500);
  if (link.state === "paused" || (paused && link.state === "connected")) {
    return (
      <div class="link-state paused" role="status">
        <span>Paused. The next command resumes it.</span>
        {resume && (
          <Button tone="main" onClick={resume}>
            Resume
          </Button>
        )}
      </div>
    );
  }
  if (link.state === "connected") return null;
  return (
    <div class={`link-state ${link.state}`} role="status">
      <span>{linkText(link, now)}</span>
      {(link.state === "waiting" || link.state === "offline") && <Button onClick={retry}>Retry now</Button>}
    </div>
  );
}

const ENDED = {
  gone: "This terminal no longer exists.",
  signed_out: "You are signed out. Run `stead login` and open the link it prints.",
  share_over: "This link has expired or was revoked. The screen shows the last output.",
};

function linkText(link: Link, now: number): string {
  switch (link.state) {
    case "connecting":
      return "Connecting…";
    case "waiting": {
      const seconds = Math.ceil((link.at - now) / 1000);
      return `Connection lost. Reconnecting ${seconds > 0 ? `in ${seconds} s` : "now"}…`;
    }
    case "offline":
      return "This device is offline. Keys are not sent.";
    case "catching_up":
      return "A lot of output. Catching up…";
    case "ended":
      return ENDED[link.why];
    case "connected":
    case "paused":
      return "";
  }
}
