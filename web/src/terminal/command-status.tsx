/** The command that a terminal runs, with its elapsed time and its actions; or how the last one ended. */

import { useEffect, useState } from "preact/hooks";
import { get, list, path } from "../api/client.ts";
import { onEvent } from "../api/events.ts";
import { usePrompt } from "../api/prompt.ts";
import { useResource } from "../api/resource.ts";
import type { Command, LastCommand } from "../api/types.ts";
import { type Activity, setActivity } from "../lib/activity.ts";
import { duration } from "../lib/time.ts";
import { beganAt, hasFailed, isUnfinished, latestOf, outcome, withCurrent } from "../lib/timeline.ts";
import { SignalMenu, StopButton } from "../ui/command-actions.tsx";
import { Badge, Elapsed } from "../ui/parts.tsx";

/** Enough to find the running command behind queued ones. */
const RECENT_COMMANDS = 10;

interface Props {
  terminal: string;
  /** The command that it runs, as far as the thread knows. */
  current: LastCommand | null;
}

export function CommandStatus({ terminal, current }: Props) {
  const recent = useResource<Command[]>(
    `recent ${terminal}`,
    () =>
      list<Command>(
        `${path("api", "terminals", terminal, "commands")}?limit=${RECENT_COMMANDS}`,
        RECENT_COMMANDS,
      ),
    (event) => event.name.startsWith("command_") && event.terminal === terminal,
  );
  const command = latestOf(withCurrent(recent.value ?? [], current ? [current] : []));
  const unfinished = command !== undefined && isUnfinished(command);
  const isKnown = command?.waiting_for_input !== undefined;
  const reported = useWaitingForInput(unfinished && !isKnown ? command.command_id : null);
  const waiting = command?.waiting_for_input ?? reported;
  const prompt = usePrompt(unfinished && waiting ? command.command_id : null);
  const activity = activityOf(command, waiting);
  useEffect(() => {
    setActivity(terminal, activity);
    return () => setActivity(terminal, null);
  }, [terminal, activity]);
  if (!command) return null;
  const shown = outcome(unfinished ? { ...command, waiting_for_input: waiting } : command);
  return (
    <span class={`command-status ${shown.tone}${unfinished ? " unfinished" : ""}`}>
      <span class="command-now" role="status">
        <Badge tone={shown.tone}>{shown.text}</Badge>
        {prompt !== "" && <code class="prompt-line">{prompt}</code>}
        <code class="cut" title={command.command}>
          {command.command}
        </code>
      </span>
      {unfinished ? <Elapsed since={beganAt(command)} /> : <Took milliseconds={command.duration_ms} />}
      {unfinished && (
        <span class="command-actions">
          <SignalMenu command={command.command_id} />
          <StopButton command={command.command_id} />
        </span>
      )}
    </span>
  );
}

function activityOf(command: Command | undefined, waiting: boolean): Activity {
  if (!command) return "idle";
  if (isUnfinished(command)) return waiting ? "waiting" : "running";
  // A typed command that fails is no news to the person who typed it.
  return command.source === "agent" && hasFailed(command) ? "failed" : "idle";
}

function Took({ milliseconds }: { milliseconds: number | null }) {
  return milliseconds === null ? null : <span>{duration(milliseconds)}</span>;
}

/** Whether a running command reads from the terminal: asked once, then as events report it. */
function useWaitingForInput(command: string | null): boolean {
  const [waiting, setWaiting] = useState(false);
  useEffect(() => {
    setWaiting(false);
    if (command === null) return;
    let asked = 0;
    const ask = async (): Promise<void> => {
      asked += 1;
      const mine = asked;
      const receipt = await get<Command>(path("api", "commands", command)).catch(() => null);
      // An event that came meanwhile is later than this answer.
      if (receipt && mine === asked) setWaiting(receipt.waiting_for_input === true);
    };
    const unsubscribe = onEvent((event) => {
      if (event.name === "*") void ask();
      if (event.name !== "command_waiting" || event.command !== command) return;
      asked += 1;
      setWaiting(event.waiting === true);
    });
    void ask();
    return () => {
      asked += 1;
      unsubscribe();
    };
  }, [command]);
  return waiting;
}
