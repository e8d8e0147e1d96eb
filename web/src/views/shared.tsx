/** The page behind a share link: one terminal, read-only. */

import { useEffect, useState } from "preact/hooks";
import { describe, get, isProblem, send } from "../api/client.ts";
import type { Share } from "../api/types.ts";
import { go } from "../lib/router.ts";
import { duration } from "../lib/time.ts";
import { terminalPath } from "../protocol/environment.ts";
import { TerminalView } from "../terminal/view.tsx";
import { DialogHost, ToastHost } from "../ui/dialogs.tsx";
import { Empty, useNow } from "../ui/parts.tsx";

/** Removes the secret from the address before anything else can read it there. */
function takeSecret(): string {
  const secret = location.hash.slice(1);
  if (secret !== "") history.replaceState(null, "", location.pathname);
  return secret;
}

type State = { share: Share } | { failure: string } | null;

const LINK_INVALID =
  "It has expired, was revoked, or was not copied completely. Ask its sender for a new one.";

export function SharedView({ terminal }: { terminal: string | null }) {
  const [state, setState] = useState<State>(null);
  useEffect(() => {
    const fail = (error: unknown): void =>
      setState({
        failure: [401, 403, 404].some((status) => isProblem(error, status)) ? LINK_INVALID : describe(error),
      });
    const secret = takeSecret();
    if (secret !== "") {
      // The secret is exchanged for a cookie that no script can read.
      send<Share>("POST", "/api/shares/open", { secret }).then((share) => {
        setState({ share });
        go(`/ui/shared/${encodeURIComponent(share.terminal_id)}`, "replace");
      }, fail);
    } else if (terminal !== null) {
      get<Share>(`${terminalPath(terminal)}/share`).then((share) => setState({ share }), fail);
    } else {
      setState({ failure: LINK_INVALID });
    }
  }, []);
  return (
    <div class="guest">
      {state === null && (
        <main class="guest-body" id="main">
          <p class="quiet-text" role="status">
            Opening…
          </p>
        </main>
      )}
      {state !== null && "failure" in state && (
        <main class="guest-body" id="main">
          <Empty title="This link does not work.">
            <p>{state.failure}</p>
          </Empty>
        </main>
      )}
      {state !== null && "share" in state && <SharedTerminal share={state.share} />}
      <DialogHost />
      <ToastHost />
    </div>
  );
}

function SharedTerminal({ share }: { share: Share }) {
  const now = useNow();
  const left = Date.parse(share.expires_at) - now;
  return (
    <>
      <header class="guest-head">
        <img src="/icon.svg" alt="" width="18" height="18" />
        <h1>{share.name || "Shared terminal"}</h1>
        <span class="quiet-text">
          read-only · {left > 0 ? `expires in ${duration(Math.floor(left / 1000) * 1000)}` : "expired"}
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
