/** One terminal in the page: its screen, who has control of it, what it runs, and its menus. */

import { useEffect, useRef, useState } from "preact/hooks";
import type { LastCommand } from "../api/types.ts";
import { setControl } from "../lib/control.ts";
import { type Preferences, prefer, preferences, useDark, usePreferences } from "../lib/preferences.ts";
import { terminalPath } from "../protocol/environment.ts";
import { signalItems } from "../ui/command-actions.tsx";
import { toast } from "../ui/dialogs.tsx";
import { Icon, type IconName } from "../ui/icons.tsx";
import { Badge, Button, Menu, type MenuItem } from "../ui/parts.tsx";
import { Attachment, INITIAL_STATE, type TerminalState } from "./attachment.ts";
import { CommandStatus } from "./command-status.tsx";
import { type AfterExit, ExitState } from "./exit-state.tsx";
import { Find } from "./find.tsx";
import { LinkState } from "./link-state.tsx";
import { terminalTheme } from "./themes.ts";

interface Props {
  terminal: string;
  label: string;
  /** Focus the terminal when it appears. */
  focus: boolean;
  /** Whether the command box and the side panel refer to this one of several terminals. */
  selected?: boolean;
  onSelect?: () => void;
  /** The instance it runs on is paused; `resume` resumes it. */
  paused: boolean;
  resume?: () => Promise<unknown>;
  onClose?: () => void;
  onShare?: () => void;
  /** What can be done when the terminal's own program has ended. */
  afterExit?: AfterExit;
  /** Opened by a share link: read-only. */
  guest?: boolean;
  /** The command that it runs, as far as the thread knows. */
  current?: LastCommand | null;
}

export function TerminalView(props: Props) {
  const { terminal, label, paused, resume, guest = false } = props;
  const box = useRef<HTMLDivElement>(null);
  const [state, setState] = useState(INITIAL_STATE);
  const [hover, setHover] = useState<string | null>(null);
  const [finding, setFinding] = useState(false);
  const attachment = useAttachment(props, box, setState, setHover);
  const { screen, socket } = attachment ?? {};

  useSharedControl(terminal, state, attachment);

  const keys = (event: KeyboardEvent): void => {
    if (!event.ctrlKey || !event.shiftKey) return;
    if (event.code === "KeyF") setFinding(true);
    else if (event.code === "ArrowLeft" || event.code === "ArrowRight")
      focusPane(terminal, event.code === "ArrowLeft" ? -1 : 1);
    else if (event.code === "KeyC") copy(screen?.selection() ?? "");
    else return;
    event.preventDefault();
  };
  const inControl = state.mode === "driver";
  const { terminalTheme: choice } = usePreferences();
  // The edge of the screen has the colour of the screen, which may differ from that of the page.
  const { background } = terminalTheme(choice, useDark());
  const stopped = !state.live && state.exit === null;
  return (
    <section
      class={`terminal${props.selected ? " selected" : ""}`}
      aria-label={`Terminal ${label}`}
      onKeyDownCapture={keys}
      onFocusCapture={props.onSelect}
      data-terminal={terminal}
      data-link={state.link.state}
      data-mode={state.mode}
    >
      <header class="terminal-head">
        <span class="terminal-title" title={state.title || label}>
          {state.title || label}
        </span>
        <ControlBadge state={state} />
        {!guest && <ControlButton state={state} attachment={attachment} />}
        <Tools
          {...props}
          attachment={attachment}
          inControl={inControl}
          toggleFind={() => setFinding(!finding)}
        />
      </header>
      {finding && (
        <Find
          screen={screen}
          close={() => {
            setFinding(false);
            screen?.focus();
          }}
        />
      )}
      <div class={`terminal-frame${inControl ? "" : " watching"}`} style={{ "--screen": background }}>
        <div ref={box} class="terminal-box" />
        <LinkState
          link={state.link}
          paused={paused}
          retry={() => socket?.retry()}
          resume={resume && (() => resume().then(() => socket?.retry()))}
        />
        {state.exit && state.link.state === "connected" && (
          <ExitState exit={state.exit} actions={props.afterExit} />
        )}
      </div>
      <footer class="terminal-foot">
        {hover && <span class="target">Opens {hover}</span>}
        {!hover && stopped && <span>Not running. The next command starts it again.</span>}
        {!guest && <CommandStatus terminal={terminal} current={props.current ?? null} />}
        <span class="size">{state.size ? `${state.size.cols}×${state.size.rows}` : ""}</span>
      </footer>
    </section>
  );
}

/** The terminal's attachment while the view is in the page, kept in step with the preferences. */
function useAttachment(
  { terminal, label, focus, paused, guest = false }: Props,
  box: { current: HTMLDivElement | null },
  setState: (update: (before: TerminalState) => TerminalState) => void,
  onHover: (address: string | null) => void,
): Attachment | undefined {
  const current = useRef<Attachment | undefined>(undefined);
  const preferred = usePreferences();
  const dark = useDark();
  const theme = terminalTheme(preferred.terminalTheme, dark);

  useEffect(() => {
    const { name, fontSize, fontFamily, screenReader, scrollback, pasteGuard } = preferred;
    const attachment = new Attachment({
      terminal,
      label,
      name,
      role: guest ? "guest" : "owner",
      settings: { fontSize, fontFamily, theme, screenReader, scrollback, pasteGuard },
      onChange: (change) => setState((before) => ({ ...before, ...change })),
      onHover,
      onSelected: (text) => {
        // A browser that denies access to the clipboard leaves the selection to be copied by hand.
        if (preferences().copyOnSelect) navigator.clipboard.writeText(text).catch(() => {});
      },
    });
    current.current = attachment;
    attachment.open(box.current!);
    if (focus) attachment.screen.focus();
    return () => {
      current.current = undefined;
      attachment.close();
    };
  }, [terminal]);

  useEffect(() => {
    if (current.current) current.current.screen.theme = theme;
  }, [theme]);
  useEffect(() => {
    if (!current.current) return;
    current.current.screen.fontSize = preferred.fontSize;
    current.current.screen.fontFamily = preferred.fontFamily;
    current.current.offerSize();
  }, [preferred.fontSize, preferred.fontFamily]);
  useEffect(() => {
    if (current.current) current.current.screen.pasteGuard = preferred.pasteGuard;
  }, [preferred.pasteGuard]);
  useEffect(() => {
    if (current.current) current.current.screen.screenReader = preferred.screenReader;
  }, [preferred.screenReader]);
  useEffect(() => {
    // It may have been resumed elsewhere.
    if (!paused && current.current?.socket.link.state === "paused") current.current.socket.retry();
  }, [paused]);
  return current.current;
}

/** Lets other parts of the page take and release control of the terminal. */
function useSharedControl(
  terminal: string,
  { mode, driver, link }: TerminalState,
  attachment: Attachment | undefined,
): void {
  useEffect(() => {
    if (!attachment) return;
    setControl(terminal, {
      mine: mode === "driver",
      driver,
      ready: link.state === "connected",
      take: () => takeControl(attachment),
      release: () => releaseControl(attachment),
    });
  }, [terminal, mode, driver, link.state, attachment]);
  useEffect(() => () => setControl(terminal, null), [terminal]);
}

function takeControl({ socket, screen }: Attachment): void {
  socket.send({ type: "take_over" });
  screen.focus();
}

function releaseControl({ socket }: Attachment): void {
  socket.send({ type: "hand_back" });
}

function ControlBadge({ state }: { state: TerminalState }) {
  if (state.mode === "driver") return <Badge tone="good">You have control</Badge>;
  if (state.driver) return <Badge tone="busy">View only · {state.driver} has control</Badge>;
  return <Badge tone="quiet">View only</Badge>;
}

function ControlButton({ state, attachment }: { state: TerminalState; attachment: Attachment | undefined }) {
  if (state.mode === "driver") {
    return (
      <Button aria-label="Release control" onClick={() => attachment && releaseControl(attachment)}>
        Release<span class="roomy-only"> control</span>
      </Button>
    );
  }
  return (
    <Button
      tone="main"
      disabled={state.link.state !== "connected"}
      onClick={() => attachment && takeControl(attachment)}
    >
      Take control
    </Button>
  );
}

/** Moves the focus to the terminal before or after this one on the page. */
function focusPane(terminal: string, step: -1 | 1): void {
  const panes = [...document.querySelectorAll<HTMLElement>("section.terminal")];
  const at = panes.findIndex((pane) => pane.dataset.terminal === terminal);
  const next = panes[(at + step + panes.length) % panes.length];
  next?.querySelector<HTMLElement>(".xterm-helper-textarea")?.focus();
}

function copy(text: string): void {
  if (text === "") {
    toast("Nothing is selected.");
    return;
  }
  void navigator.clipboard.writeText(text).then(
    () => toast("Copied."),
    () => toast("Couldn't copy: the browser denies access to the clipboard."),
  );
}

function pasteInto(attachment: Attachment | undefined): void {
  void navigator.clipboard.readText().then(
    (text) => {
      attachment?.screen.paste(text);
      attachment?.screen.focus();
    },
    () => toast("Couldn't paste: the browser denies access to the clipboard. Press Ctrl-V instead."),
  );
}

type ToolsProps = Props & { attachment: Attachment | undefined; inControl: boolean; toggleFind: () => void };

function Tools({ terminal, guest, attachment, inControl, toggleFind, onShare, onClose }: ToolsProps) {
  const preferred = usePreferences();
  const copySelection = (): void => copy(attachment?.screen.selection() ?? "");
  const paste = (): void => pasteInto(attachment);
  const items: MenuItem[] = [
    ...textItems(preferred),
    { label: "Copy selection", run: copySelection },
    { label: "Copy all text", run: () => copy(attachment?.screen.wholeText() ?? "") },
    ...(guest ? [] : [{ label: "Paste", disabled: !inControl, run: paste }]),
    { label: "Download recording", run: () => download(terminal) },
    ...(onShare ? [{ label: "Share a read-only link…", run: onShare }] : []),
    ...(onClose ? [{ label: "Close pane", run: onClose }] : []),
  ];
  return (
    <span class="tools">
      <Tool icon="search" label="Search in the terminal" hint="Search (Ctrl-Shift-F)" run={toggleFind} />
      <Tool
        roomy
        icon="copy"
        label="Copy selection"
        hint="Copy selection (Ctrl-Shift-C)"
        run={copySelection}
      />
      {!guest && <Tool roomy icon="paste" label="Paste" disabled={!inControl} run={paste} />}
      {onShare && <Tool roomy icon="share" label="Share a read-only link" run={onShare} />}
      {!guest && (
        <Menu label="Send a signal" items={signalItems(`${terminalPath(terminal)}/signal`)}>
          <Icon name="signal" />
        </Menu>
      )}
      <Menu label="More terminal actions" items={items}>
        <Icon name="more" />
      </Menu>
    </span>
  );
}

interface ToolProps {
  icon: IconName;
  label: string;
  hint?: string;
  disabled?: boolean;
  /** Leave the button out where the terminal is narrow. */
  roomy?: boolean;
  run: () => void;
}

function Tool({ icon, label, hint = label, disabled = false, roomy = false, run }: ToolProps) {
  return (
    <button
      type="button"
      class={`button ghost${roomy ? " roomy-only" : ""}`}
      title={hint}
      aria-label={label}
      disabled={disabled}
      onClick={run}
    >
      <Icon name={icon} />
    </button>
  );
}

const textItems = ({ fontSize, screenReader }: Preferences): MenuItem[] => [
  { label: "Larger text", run: () => prefer({ fontSize: fontSize + 1 }) },
  { label: "Smaller text", run: () => prefer({ fontSize: fontSize - 1 }) },
  {
    label: screenReader ? "Turn off screen reader mode" : "Turn on screen reader mode",
    run: () => prefer({ screenReader: !screenReader }),
  },
];

/** Saves the recording under the terminal's name. */
export function download(terminal: string): void {
  const link = document.createElement("a");
  link.href = `${terminalPath(terminal)}/recording`;
  link.download = `${terminal}.cast`;
  link.click();
}
