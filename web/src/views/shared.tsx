/** What somebody sees who came by a share link: one terminal, to look at. */

import { useEffect, useState } from "preact/hooks";
import { describe, get, isProblem, send } from "../api/client.ts";
import type { Share } from "../api/types.ts";
import { go } from "../lib/router.ts";
import { duration } from "../lib/time.ts";
import { terminalPath } from "../protocol/world.ts";
import { TerminalView } from "../terminal/view.tsx";
import { DialogHost, RemarkHost } from "../ui/dialogs.tsx";
import { Empty, useNow } from "../ui/parts.tsx";

/** Takes the secret out of the address before anything else can see it there. */
function takeSecret(): string {
  const secret = location.hash.slice(1);
  if (secret !== "") history.replaceState(null, "", location.pathname);
  return secret;
}

type Seen = { share: Share } | { over: string } | null;

const OVER = "It expired, was taken back, or was not copied whole. Ask whoever sent it for another.";

export function SharedView({ terminal }: { terminal: string | null }) {
  const [seen, setSeen] = useState<Seen>(null);
  useEffect(() => {
    const fail = (error: unknown): void =>
      setSeen({ over: [401, 403, 404].some((status) => isProblem(error, status)) ? OVER : describe(error) });
    const secret = takeSecret();
    if (secret !== "") {
      // The secret is exchanged for a cookie that no script can read.
      send<Share>("POST", "/api/shares/open", { secret }).then((share) => {
        setSeen({ share });
        go(`/ui/shared/${encodeURIComponent(share.terminal_id)}`, "replace");
      }, fail);
    } else if (terminal !== null) {
      get<Share>(`${terminalPath(terminal)}/share`).then((share) => setSeen({ share }), fail);
    } else {
      setSeen({ over: OVER });
    }
  }, []);
  return (
    <div class="guest">
      {seen === null && (
        <main class="guest-body" id="main">
          <p class="quiet-text" role="status">
            Opening…
          </p>
        </main>
      )}
      {seen !== null && "over" in seen && (
        <main class="guest-body" id="main">
          <Empty title="This link shows nothing any more.">
            <p>{seen.over}</p>
          </Empty>
        </main>
      )}
      {seen !== null && "share" in seen && <Shown share={seen.share} />}
      <DialogHost />
      <RemarkHost />
    </div>
  );
}

function Shown({ share }: { share: Share }) {
  const now = useNow();
  const left = Date.parse(share.expires_at) - now;
  return (
    <>
      <header class="guest-head">
        <img src="/icon.svg" alt="" width="18" height="18" />
        <h1>{share.name || "A shared terminal"}</h1>
        <span class="quiet-text">
          read-only · {left > 0 ? `ends in ${duration(Math.floor(left / 1000) * 1000)}` : "ended"}
        </span>
      </header>
      <main class="guest-body" id="main">
        <TerminalView
          terminal={share.terminal_id}
          label={share.name || "shared terminal"}
          focus
          paused={false}
          guest
        />
      </main>
    </>
  );
}
