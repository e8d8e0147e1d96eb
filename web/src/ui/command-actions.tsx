/** What a person can do to a running command: stop it, or send it a signal. */

import { path, send } from "../api/client.ts";
import { attempt } from "./dialogs.tsx";
import { Button, Menu, type MenuItem } from "./parts.tsx";

const SIGNALS = ["INT", "TERM", "HUP", "QUIT", "TSTP", "CONT", "KILL"] as const;

/** The actions that send a signal; `address` is the signal route of a command or a terminal. */
export const signalItems = (address: string): MenuItem[] =>
  SIGNALS.map((signal) => ({
    label: `SIG${signal}`,
    ...(signal === "KILL" && { tone: "danger" as const }),
    run: () =>
      attempt(`Couldn't send SIG${signal}.`, () => send("POST", address, { signal }), `Sent SIG${signal}.`),
  }));

/** Ends a command. `of` tells several of these buttons apart. */
export function StopButton({ command, of }: { command: string; of?: string }) {
  const stop = (): Promise<unknown> =>
    attempt("Couldn't stop the command.", () => send("POST", path("api", "commands", command, "cancel")));
  return (
    <Button tone="danger" onClick={stop} {...(of !== undefined && { "aria-label": `Stop ${of}` })}>
      Stop
    </Button>
  );
}

export function SignalMenu({ command }: { command: string }) {
  return (
    <Menu label="Send signal" side="above" items={signalItems(path("api", "commands", command, "signal"))}>
      Send signal
    </Menu>
  );
}
