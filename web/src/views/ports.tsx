/** The ports that programs of a thread listen on, each with its preview. */

import { useState } from "preact/hooks";
import { get, isProblem, path } from "../api/client.ts";
import type { AppEvent } from "../api/events.ts";
import { portsOf } from "../api/ports.ts";
import { useResource } from "../api/resource.ts";
import type { Sandbox } from "../api/types.ts";
import { previewAddress } from "../lib/ports.ts";
import { Icon } from "../ui/icons.tsx";
import { Button, CommandLine, Copy, Failure, useModal } from "../ui/parts.tsx";
import "./ports.css";

interface Props {
  thread: string;
  /** Whether an event may have changed the ports. */
  isAffected: (event: AppEvent) => boolean;
}

function PortList({ thread, isAffected }: Props) {
  const ports = useResource<number[]>(`ports ${thread}`, () => portsOf(thread), isAffected, 500);
  const sandbox = useResource<Sandbox | null>(
    `sandbox ${thread}`,
    () =>
      get<Sandbox>(path("api", "sandboxes", thread)).catch((error: unknown) => {
        if (isProblem(error, 404)) return null;
        throw error;
      }),
    () => false,
  );
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
            <PortRow key={port} port={port} thread={thread} sandbox={sandbox.value ?? null} />
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
  sandbox: Sandbox | null;
}

function PortRow({ port, thread, sandbox }: RowProps) {
  const preview = previewAddress(location, sandbox, port);
  return (
    <li>
      <span class="port-head">
        <code>{port}</code>
        {preview && (
          <span class="port-preview">
            <a href={preview} target="_blank" rel="noreferrer">
              Open preview
            </a>
            <Copy text={preview} label={`Copy the address of port ${port}`} />
          </span>
        )}
      </span>
      {!preview && <CommandLine text={`stead exec --thread ${thread} -- 'curl -s localhost:${port}'`} />}
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
