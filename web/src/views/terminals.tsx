/** The terminals of a thread in panes, with a tab for each and the command box below. */

import { useEffect, useState } from "preact/hooks";
import { list, path, send } from "../api/client.ts";
import { type Resource, useResource } from "../api/resource.ts";
import type { LastCommand, Terminal } from "../api/types.ts";
import { go, threadAddress } from "../lib/router.ts";
import { TerminalView } from "../terminal/view.tsx";
import { ask, attempt, toast } from "../ui/dialogs.tsx";
import { Icon } from "../ui/icons.tsx";
import { Button, Empty, Failure, Menu } from "../ui/parts.tsx";
import { ExecBox } from "./exec.tsx";
import { ShareDialog } from "./share.tsx";

/** The terminals of a thread, the default one first. */
export function useTerminals(thread: string): Resource<Terminal[]> {
  return useResource<Terminal[]>(
    `terminals ${thread}`,
    () => list<Terminal>(path("api", "threads", thread, "terminals")),
    (event) => event.name.startsWith("terminal") && (event.thread === null || event.thread === thread),
  );
}

/** A short name for a terminal among those of its thread. */
export const terminalLabel = (terminal: Terminal, index: number): string =>
  terminal.title ||
  (terminal.cmd?.length ? terminal.cmd.join(" ") : index === 0 ? "main" : `terminal ${index + 1}`);

/** Creates a terminal and shows it. It runs a shell, or `program` and nothing else. */
export async function newTerminal(thread: string, program?: string[]): Promise<void> {
  const made = await attempt("Couldn't create a terminal.", () =>
    send<Terminal>("POST", path("api", "threads", thread, "terminals"), program ? { cmd: program } : {}),
  );
  if (made) go(threadAddress(thread, "terminals", { show: made.terminal_id }));
}

async function deleteTerminal(terminal: Terminal, label: string): Promise<void> {
  const yes = await ask({
    title: `Delete terminal ${label}?`,
    text: "Its processes are killed and its state is deleted.",
    action: "Delete",
    danger: true,
  });
  if (!yes) return;
  await attempt(
    "Couldn't delete the terminal.",
    () => send("DELETE", path("api", "terminals", terminal.terminal_id)),
    "Terminal deleted.",
  );
}

interface Pane {
  terminal: Terminal;
  label: string;
}

interface Props {
  thread: string;
  terminals: Resource<Terminal[]>;
  /** The terminal in the address. */
  wanted: string | null;
  /** The terminal that the side panel and the command box refer to. */
  selected: string | null;
  onSelect: (terminal: string) => void;
  /** The commands that run in terminals of the thread. */
  current: readonly LastCommand[];
  paused: boolean;
  resume: () => Promise<unknown>;
}

export function Terminals(props: Props) {
  const { thread, terminals, wanted, selected, onSelect, current, paused, resume } = props;
  const all = terminals.value ?? [];
  const [shown, setShown] = useShown(all, wanted);
  const [sharing, setSharing] = useState<{ terminal: string; label: string } | null>(null);
  const panes = shown.flatMap((id): Pane[] => {
    const index = all.findIndex((terminal) => terminal.terminal_id === id);
    return index < 0 ? [] : [{ terminal: all[index]!, label: terminalLabel(all[index]!, index) }];
  });
  const target = panes.find((pane) => pane.terminal.terminal_id === selected) ?? panes[0];
  const targetId = target?.terminal.terminal_id;
  useEffect(() => {
    if (targetId !== undefined && targetId !== selected) onSelect(targetId);
  }, [targetId, selected]);

  if (terminals.error !== undefined && all.length === 0) {
    return <Failure error={terminals.error} retry={terminals.refresh} />;
  }
  if (terminals.value && all.length === 0) {
    return (
      <Empty title="No terminals yet." command={`stead attach ${thread}`}>
        <Button tone="main" onClick={() => newTerminal(thread)}>
          New terminal
        </Button>
      </Empty>
    );
  }
  const hide = (id: string): void => setShown((before) => before.filter((other) => other !== id));
  return (
    <div class="terminals">
      <Tabs thread={thread} terminals={terminals} shown={shown} setShown={setShown} />
      <div class={`panes panes-${Math.min(panes.length, 4)}`}>
        {panes.map(({ terminal, label }, index) => (
          <TerminalView
            key={terminal.terminal_id}
            terminal={terminal.terminal_id}
            label={label}
            focus={index === panes.length - 1}
            selected={panes.length > 1 && terminal.terminal_id === targetId}
            onSelect={() => onSelect(terminal.terminal_id)}
            current={current.find((one) => one.terminal_id === terminal.terminal_id) ?? null}
            paused={paused}
            resume={resume}
            onShare={() => setSharing({ terminal: terminal.terminal_id, label })}
            afterExit={{
              again: () => newTerminal(thread, terminal.cmd),
              remove: () => deleteTerminal(terminal, label).then(terminals.refresh),
            }}
            {...(panes.length > 1 && { onClose: () => hide(terminal.terminal_id) })}
          />
        ))}
      </div>
      {sharing && <ShareDialog {...sharing} close={() => setSharing(null)} />}
      {target && (
        <ExecBox
          terminal={target.terminal.terminal_id}
          label={target.label}
          among={panes.length}
          onFailed={toast}
        />
      )}
    </div>
  );
}

type SetShown = (update: string[] | ((before: string[]) => string[])) => void;

/** The ids of the terminals that have a pane. */
function useShown(all: Terminal[], wanted: string | null): [string[], SetShown] {
  const [shown, setShown] = useState<string[]>([]);
  const ids = all.map((terminal) => terminal.terminal_id);
  useEffect(() => {
    // A deleted terminal leaves its pane; one is always shown.
    setShown((before) => {
      const kept = before.filter((id) => ids.includes(id));
      return kept.length > 0 ? kept : ids.slice(0, 1);
    });
  }, [ids.join(" ")]);
  const exists = wanted !== null && ids.includes(wanted);
  useEffect(() => {
    if (exists) setShown([wanted]);
  }, [wanted, exists]);
  return [shown, setShown];
}

interface TabsProps {
  thread: string;
  terminals: Resource<Terminal[]>;
  shown: string[];
  setShown: SetShown;
}

function Tabs({ thread, terminals, shown, setShown }: TabsProps) {
  const all = terminals.value ?? [];
  return (
    <div class="terminal-tabs" role="group" aria-label="Terminals">
      {all.map((terminal, index) => (
        <Tab
          key={terminal.terminal_id}
          terminal={terminal}
          label={terminalLabel(terminal, index)}
          shown={shown}
          setShown={setShown}
        />
      ))}
      <button
        type="button"
        class="button ghost"
        aria-label="New terminal"
        title="New terminal"
        onClick={() => void newTerminal(thread)}
      >
        <Icon name="plus" />
      </button>
      {all.length > 1 && (
        <Menu
          label="Delete a terminal"
          items={all.slice(1).map((terminal, index) => {
            const label = terminalLabel(terminal, index + 1);
            return {
              label: `Delete ${label}…`,
              tone: "danger" as const,
              run: () => deleteTerminal(terminal, label).then(terminals.refresh),
            };
          })}
        >
          <Icon name="trash" />
        </Menu>
      )}
    </div>
  );
}

interface TabProps {
  terminal: Terminal;
  label: string;
  shown: string[];
  setShown: SetShown;
}

function Tab({ terminal: { terminal_id: id }, label, shown, setShown }: TabProps) {
  const on = shown.includes(id);
  const toggle = (): void =>
    setShown((before) => {
      const others = before.filter((other) => other !== id);
      return on ? others : [...others, id];
    });
  return (
    <span class={`terminal-tab${on ? " on" : ""}`}>
      <button type="button" aria-pressed={on} onClick={() => setShown([id])} title={id}>
        {label}
      </button>
      <button
        type="button"
        class="beside"
        aria-label={on ? `Hide ${label}` : `Show ${label} side by side`}
        title={on ? "Hide" : "Show side by side"}
        disabled={on && shown.length === 1}
        onClick={toggle}
      >
        <Icon name={on ? "close" : "split"} />
      </button>
    </span>
  );
}
