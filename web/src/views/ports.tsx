/** The ports that programs of a thread listen on, each with a link that opens it. */

import { useState } from "preact/hooks";
import type { AppEvent } from "../api/events.ts";
import { linkTo, portsOf } from "../api/ports.ts";
import { useResource } from "../api/resource.ts";
import type { Sandbox } from "../api/types.ts";
import { attempt, toast } from "../ui/dialogs.tsx";
import { Icon } from "../ui/icons.tsx";
import { Button, CommandLine, Failure, useModal } from "../ui/parts.tsx";
import "./ports.css";

interface Props {
  thread: string;
  /** Whether an event may have changed the ports. */
  isAffected: (event: AppEvent) => boolean;
}

function PortList({ thread, isAffected }: Props) {
  const ports = useResource<number[]>(`ports ${thread}`, () => portsOf(thread), isAffected, 500);
  if (ports.error !== undefined) {
    return <Failure error={ports.error} retry={ports.refresh} />;
  }
  if (!ports.value) return <p class="quiet-text">Reading the ports…</p>;
  return (
    <>
      {ports.value.length === 0 ? (
        <div class="no-ports">
          <p class="quiet-text">No program listens on a port. To try it, run in the terminal:</p>
          <CommandLine text="python3 -m http.server 8000" />
        </div>
      ) : (
        <ul class="ports">
          {ports.value.map((port) => (
            <PortRow key={port} port={port} thread={thread} />
          ))}
        </ul>
      )}
      <Button onClick={ports.refresh}>Refresh</Button>
    </>
  );
}

interface RowProps {
  port: number;
  thread: string;
}

const link = ({ thread, port }: RowProps): Promise<string | undefined> =>
  attempt("Couldn't create the link.", () => linkTo(thread, port));

/** Opens a port in a tab. The tab is opened at once, because browsers block tabs that a click does not open. */
async function openPort(row: RowProps): Promise<void> {
  const tab = window.open("about:blank", "_blank");
  if (tab) tab.opener = null;
  const url = await link(row);
  if (url === undefined) tab?.close();
  else if (tab) tab.location.replace(url);
  else toast("Couldn't open the port: the browser blocks new tabs. Copy the link instead.");
}

async function copyLink(row: RowProps): Promise<void> {
  const url = await link(row);
  if (url === undefined) return;
  await navigator.clipboard.writeText(url).then(
    () => toast("Link copied. Everyone who has it can use the port for a day."),
    () => toast(`Couldn't copy: the browser denies access to the clipboard. The link is ${url}`),
  );
}

function PortRow(row: RowProps) {
  return (
    <li>
      <span class="port-head">
        <code>{row.port}</code>
        <span class="port-preview">
          <Button aria-label={`Open port ${row.port}`} onClick={() => openPort(row)}>
            Open
          </Button>
          <Button aria-label={`Copy a link to port ${row.port}`} onClick={() => copyLink(row)}>
            Copy link
          </Button>
        </span>
      </span>
    </li>
  );
}

/** A section of the status of a thread. The ports are read while it is open. */
export function PortsSection({ thread, provider, isAffected }: Props & { provider: string | undefined }) {
  const [open, setOpen] = useState(false);
  return (
    <details class="status-section" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <h2>Ports</h2>
      </summary>
      {open && (
        <div class="port-panel">
          {provider === "local" ? (
            <LocalPorts thread={thread} />
          ) : (
            <PortList
              thread={thread}
              isAffected={(event) => event.name.startsWith("command_") && isAffected(event)}
            />
          )}
        </div>
      )}
    </details>
  );
}

function LocalPorts({ thread }: { thread: string }) {
  return (
    <>
      <p class="quiet-text">
        Programs of this thread run on the server's machine, so their ports are the machine's. List them with:
      </p>
      <CommandLine text={`stead ports ${thread}`} />
    </>
  );
}

export function PortsDialog({ sandbox, close }: { sandbox: Sandbox; close: () => void }) {
  const box = useModal();
  return (
    <dialog
      ref={box}
      class="dialog"
      aria-labelledby="ports-title"
      onCancel={(event) => {
        event.preventDefault();
        close();
      }}
    >
      <header class="dialog-head">
        <h2 id="ports-title">Ports of {sandbox.name ?? sandbox.sandbox_id}</h2>
        <button type="button" class="button ghost" aria-label="Close" title="Close" onClick={close}>
          <Icon name="close" />
        </button>
      </header>
      <div class="port-panel">
        {sandbox.provider === "local" ? (
          <LocalPorts thread={sandbox.thread_id} />
        ) : (
          <PortList
            thread={sandbox.thread_id}
            isAffected={(event) => event.name.startsWith("command_") && event.thread === sandbox.thread_id}
          />
        )}
      </div>
    </dialog>
  );
}
