/** Share links, each of which shows one terminal: create, copy, list, revoke. */

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { list, path, send } from "../api/client.ts";
import { type Resource, useResource } from "../api/resource.ts";
import type { Share } from "../api/types.ts";
import { relative } from "../lib/time.ts";
import { attempt, toast } from "../ui/dialogs.tsx";
import { Badge, Button, Failure, type Tone, useModal, useNow } from "../ui/parts.tsx";

const LIFETIMES = [
  { label: "1 hour", seconds: 3600 },
  { label: "8 hours", seconds: 8 * 3600 },
  { label: "1 day", seconds: 24 * 3600 },
  { label: "7 days", seconds: 7 * 24 * 3600 },
  { label: "30 days", seconds: 30 * 24 * 3600 },
];
const DEFAULT_LIFETIME_SECONDS = 24 * 3600;

/** The links of one terminal, or of all. */
export function useShares(terminal: string | null): Resource<Share[]> {
  const at = terminal === null ? "/api/shares" : path("api", "terminals", terminal, "shares");
  return useResource<Share[]>(
    `shares ${at}`,
    () => list<Share>(`${at}?limit=200`, 200),
    (event) => event.name.startsWith("share_") && (terminal === null || event.terminal === terminal),
  );
}

/** The link under the address that this browser uses for the server. The part after # is never sent. */
function addressOf(share: Share): string {
  const url = new URL(share.url ?? "", location.origin);
  return `${location.origin}${url.pathname}${url.hash}`;
}

export function ShareDialog({
  terminal,
  label,
  close,
}: {
  terminal: string;
  label: string;
  close: () => void;
}) {
  const box = useModal();
  const field = useRef<HTMLInputElement>(null);
  const [seconds, setSeconds] = useState(DEFAULT_LIFETIME_SECONDS);
  const [name, setName] = useState("");
  const [made, setMade] = useState<string | null>(null);
  const shares = useShares(terminal);
  useLayoutEffect(() => field.current?.select(), [made]);

  const copy = (address: string): Promise<void> =>
    navigator.clipboard.writeText(address).then(
      () => toast("Link copied."),
      () => toast("Couldn't copy: the browser denies access to the clipboard. Copy the link from the field."),
    );
  const create = async (): Promise<void> => {
    const share = await attempt("Couldn't create the link.", () =>
      send<Share>("POST", path("api", "terminals", terminal, "shares"), {
        name: name.trim(),
        expires_in_s: seconds,
      }),
    );
    if (!share) return;
    const address = addressOf(share);
    setMade(address);
    shares.refresh();
    await copy(address);
  };
  return (
    <dialog
      ref={box}
      class="dialog share-dialog"
      aria-labelledby="share-title"
      onCancel={(event) => {
        event.preventDefault();
        close();
      }}
    >
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void create();
        }}
      >
        <h2 id="share-title">Share {label}, read-only</h2>
        <p>
          Anyone with the link sees this terminal live and can download its recording. They cannot type,
          resize or see anything else.
        </p>
        <div class="share-new">
          <label class="labelled">
            <span>Expires after</span>
            <select value={seconds} onChange={(event) => setSeconds(Number(event.currentTarget.value))}>
              {LIFETIMES.map((one) => (
                <option key={one.seconds} value={one.seconds}>
                  {one.label}
                </option>
              ))}
            </select>
          </label>
          <label class="labelled grow">
            <span>Name</span>
            <input
              value={name}
              maxLength={64}
              placeholder="optional"
              onInput={(event) => setName(event.currentTarget.value)}
            />
          </label>
          <button type="submit" class="button main">
            Create link
          </button>
        </div>
      </form>
      {made !== null && (
        <div class="share-made">
          <label class="labelled">
            <span>Link. Copy it now: it is not shown again.</span>
            <span class="share-link">
              <input ref={field} readOnly value={made} onFocus={(event) => event.currentTarget.select()} />
              <Button onClick={() => copy(made)}>Copy</Button>
            </span>
          </label>
        </div>
      )}
      <ShareList shares={shares} />
      <div class="dialog-actions">
        <Button onClick={close}>Close</Button>
      </div>
    </dialog>
  );
}

const TONES: Record<Share["status"], Tone> = { active: "good", expired: "quiet", revoked: "quiet" };

/** Share links, active ones first. */
export function ShareList({
  shares,
  ownerOf,
}: {
  shares: Resource<Share[]>;
  ownerOf?: (share: Share) => string;
}) {
  const now = useNow(5000);
  // It may have expired since it was fetched.
  const status = (share: Share): Share["status"] =>
    share.status === "active" && Date.parse(share.expires_at) <= now ? "expired" : share.status;
  const all = [...(shares.value ?? [])].sort(
    (a, b) => Number(status(b) === "active") - Number(status(a) === "active"),
  );
  const revoke = async (share: Share): Promise<void> => {
    await attempt(
      "Couldn't revoke the link.",
      () => send("DELETE", path("api", "shares", share.share_id)),
      "Link revoked.",
    );
    shares.refresh();
  };
  if (shares.error !== undefined) return <Failure error={shares.error} retry={shares.refresh} />;
  if (all.length === 0) return <p class="quiet-text">No share links.</p>;
  return (
    <ul class="shares">
      {all.map((share) => {
        const is = status(share);
        return (
          <li key={share.share_id}>
            <Badge tone={TONES[is]}>{is}</Badge>
            <span class="share-name">
              {share.name || "Unnamed"}
              {ownerOf && <span class="quiet-text"> · {ownerOf(share)}</span>}
            </span>
            <span class="quiet-text">
              {is === "revoked"
                ? `revoked ${relative(share.revoked_at, now)}`
                : `${is === "active" ? "expires" : "expired"} ${relative(share.expires_at, now)}`}
            </span>
            {is === "active" && (
              <Button tone="danger" onClick={() => revoke(share)}>
                Revoke
              </Button>
            )}
          </li>
        );
      })}
    </ul>
  );
}
