/** The destinations that programs of a sandbox connected to, and those that were refused. */

import { useState } from "preact/hooks";
import { Problem } from "../api/client.ts";
import { type EgressEntry, type EgressLog, egressOf } from "../api/egress.ts";
import type { AppEvent } from "../api/events.ts";
import { useResource } from "../api/resource.ts";
import { plural } from "../lib/time.ts";
import { Ago, Badge, Button, Failure } from "../ui/parts.tsx";
import "./egress.css";

interface Props {
  thread: string;
  /** Whether an event may have changed the log. */
  isAffected: (event: AppEvent) => boolean;
}

/** A section of the status of a thread. The log is read while it is open. */
export function EgressSection({ thread, isAffected }: Props) {
  const [open, setOpen] = useState(false);
  return (
    <details class="status-section" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <h2>Egress</h2>
      </summary>
      {open && (
        <div class="egress-panel">
          <Log
            thread={thread}
            isAffected={(event) => event.name.startsWith("command_") && isAffected(event)}
          />
        </div>
      )}
    </details>
  );
}

function Log({ thread, isAffected }: Props) {
  const log = useResource<EgressLog>(`egress ${thread}`, () => egressOf(thread), isAffected, 500);
  if (log.error instanceof Problem && log.error.code === "not_supported") {
    return <p class="quiet-text">The provider of this thread keeps no log of its connections.</p>;
  }
  if (log.error !== undefined) return <Failure error={log.error} retry={log.refresh} />;
  if (!log.value) return <p class="quiet-text">Reading the log…</p>;
  const { items, unlisted_allowed: allowed, unlisted_refused: refused } = log.value;
  return (
    <>
      {items.length === 0 ? (
        <p class="quiet-text">
          No program has connected to an address outside of the sandbox since it started. Connections appear
          here, and those that its rules refuse.
        </p>
      ) : (
        <ul class="egress">
          {items.map((entry) => (
            <Entry key={`${entry.verdict} ${placeOf(entry)} ${entry.protocol}`} entry={entry} />
          ))}
        </ul>
      )}
      {allowed + refused > 0 && (
        <p class="quiet-text">
          The log is full. Not listed: {plural(allowed, "allowed attempt")},{" "}
          {plural(refused, "refused attempt")}.
        </p>
      )}
      <Button onClick={log.refresh}>Refresh</Button>
    </>
  );
}

const placeOf = ({ address, port }: EgressEntry): string => (port === null ? address : `${address}:${port}`);

function Entry({ entry }: { entry: EgressEntry }) {
  return (
    <li>
      <span class="egress-place">
        <code>{placeOf(entry)}</code>
        <Badge tone={entry.verdict === "allowed" ? "good" : "bad"}>{entry.verdict}</Badge>
      </span>
      <span class="quiet-text">
        {entry.name !== null && `${entry.name}, `}
        {entry.protocol}, {plural(entry.attempts, "attempt")}, <Ago time={entry.last_seen_at} />
      </span>
    </li>
  );
}
