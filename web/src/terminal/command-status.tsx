/** The command that a terminal runs, with its elapsed time and a stop button; or how the last one ended. */

import { useEffect, useState } from "preact/hooks";
import { get, list, path, send } from "../api/client.ts";
import { useResource } from "../api/resource.ts";
import type { Command } from "../api/types.ts";
import { type Activity, setActivity } from "../lib/activity.ts";
import { duration } from "../lib/time.ts";
import { beganAt, hasFailed, isUnfinished, latestOf, outcome } from "../lib/timeline.ts";
import { attempt } from "../ui/dialogs.tsx";
import { Badge, Button, useNow } from "../ui/parts.tsx";

/** Enough to find the running command behind queued ones. */
const RECENT_COMMANDS = 10;
const POLL_INTERVAL_MS = 3000;
/** A receipt contains the output, so polling stops when it is larger than this. */
const MAX_POLLED_BYTES = 64 << 10;

export function CommandStatus({ terminal }: { terminal: string }) {
  const recent = useResource<Command[]>(
    `recent ${terminal}`,
    () =>
      list<Command>(
        `${path("api", "terminals", terminal, "commands")}?limit=${RECENT_COMMANDS}`,
        RECENT_COMMANDS,
      ),
    (event) => event.name.startsWith("command_") && event.terminal === terminal,
  );
  const command = latestOf(recent.value ?? []);
  const unfinished = command !== undefined && isUnfinished(command);
  const waiting = useWaitingForInput(unfinished ? command.command_id : null);
  const activity = activityOf(command, waiting);
  useEffect(() => {
    setActivity(terminal, activity);
    return () => setActivity(terminal, null);
  }, [terminal, activity]);
  if (!command) return null;
  const shown = outcome(unfinished ? { ...command, waiting_for_input: waiting } : command);
  return (
    <span class={`command-status ${shown.tone}`} role="status">
      <Badge tone={shown.tone}>{shown.text}</Badge>
      <code class="cut" title={command.command}>
        {command.command}
      </code>
      {unfinished ? <Elapsed since={beganAt(command)} /> : <Took milliseconds={command.duration_ms} />}
      {unfinished && <Stop command={command.command_id} />}
    </span>
  );
}

function activityOf(command: Command | undefined, waiting: boolean): Activity {
  if (!command) return "idle";
  if (isUnfinished(command)) return waiting ? "waiting" : "running";
  // A typed command that fails is no news to the person who typed it.
  return command.source === "agent" && hasFailed(command) ? "failed" : "idle";
}

function Elapsed({ since }: { since: string }) {
  const now = useNow();
  // Not negative where the server's clock is ahead.
  const seconds = Math.max(0, Math.floor((now - Date.parse(since)) / 1000));
  return <span>{seconds < 60 ? `${seconds} s` : duration(seconds * 1000)}</span>;
}

function Took({ milliseconds }: { milliseconds: number | null }) {
  return milliseconds === null ? null : <span>{duration(milliseconds)}</span>;
}

function Stop({ command }: { command: string }) {
  const stop = (): Promise<unknown> =>
    attempt("Couldn't stop the command.", () => send("POST", path("api", "commands", command, "cancel")));
  return (
    <Button tone="danger" onClick={stop}>
      Stop
    </Button>
  );
}

/** Whether a running command reads from the terminal. The server sends no event for that, so it is polled. */
function useWaitingForInput(command: string | null): boolean {
  const [waiting, setWaiting] = useState(false);
  useEffect(() => {
    setWaiting(false);
    if (command === null) return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let stopped = false;
    const poll = async (): Promise<void> => {
      const receipt = await get<Command>(path("api", "commands", command)).catch(() => null);
      if (stopped) return;
      if (receipt) setWaiting(receipt.waiting_for_input === true);
      if (receipt && receipt.stdout_bytes + receipt.stderr_bytes > MAX_POLLED_BYTES) return;
      timer = setTimeout(() => void poll(), POLL_INTERVAL_MS);
    };
    timer = setTimeout(() => void poll(), POLL_INTERVAL_MS);
    return () => {
      stopped = true;
      clearTimeout(timer);
    };
  }, [command]);
  return waiting;
}
