/** One terminal in the page: its screen, who drives it, and what can be done with it. */

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { send } from "../api/client.ts";
import { prefer, useDark, usePreferences } from "../lib/preferences.ts";
import type { Mode } from "../protocol/protocol.ts";
import { type Link, TerminalSocket } from "../protocol/socket.ts";
import { browserWorld, terminalPath } from "../protocol/world.ts";
import { ask, attempt, say } from "../ui/dialogs.tsx";
import { Icon } from "../ui/icons.tsx";
import { Badge, Button, Menu, useNow } from "../ui/parts.tsx";
import { Screen } from "./screen.ts";
import { themes } from "./themes.ts";

const SIGNALS = ["INT", "TERM", "HUP", "QUIT", "TSTP", "CONT", "KILL"];

interface Standing {
  link: Link;
  mode: Mode;
  driver: string | null;
  title: string;
  live: boolean;
  exit: string | null;
  size: { cols: number; rows: number } | null;
}

const BEGIN: Standing = {
  link: { state: "connecting" },
  mode: "viewer",
  driver: null,
  title: "",
  live: true,
  exit: null,
  size: null,
};

interface Props {
  terminal: string;
  label: string;
  /** Focus it when it appears. */
  focus: boolean;
  /** What it runs on is paused; `resume` ends that. */
  paused: boolean;
  resume?: () => Promise<unknown>;
  onClose?: () => void;
  onShare?: () => void;
  /** Somebody with a share link, who can only look. */
  guest?: boolean;
}

export function TerminalView({
  terminal,
  label,
  focus,
  paused,
  resume,
  onClose,
  onShare,
  guest = false,
}: Props) {
  const box = useRef<HTMLDivElement>(null);
  const held = useRef<{ screen: Screen; socket: TerminalSocket } | null>(null);
  const [standing, setStanding] = useState(BEGIN);
  const [hover, setHover] = useState<string | null>(null);
  const [finding, setFinding] = useState(false);
  const preferred = usePreferences();
  const dark = useDark();

  useEffect(() => {
    const change = (more: Partial<Standing>): void => setStanding((before) => ({ ...before, ...more }));
    const driving = { now: false };
    const screen = new Screen(
      {
        fontSize: preferred.fontSize,
        theme: dark ? themes.dark : themes.light,
        screenReader: preferred.screenReader,
        scrollback: preferred.scrollback,
      },
      {
        input: (bytes) => {
          if (driving.now) socket.input(bytes);
        },
        drawn: (bytes) => socket.drawn(bytes),
        link: setHover,
        remeasured: () => offer(),
        openLink: (address) =>
          void ask({ title: "Open this link?", sample: address, action: "Open" }).then((yes) => {
            if (yes) window.open(address, "_blank", "noopener,noreferrer");
          }),
        confirmPaste: (text, go) =>
          void ask({
            title: "Paste this?",
            text: "It has several lines or hidden characters, and each line may run at once.",
            sample: text,
            action: "Paste",
          }).then((yes) => yes && go()),
      },
    );
    /** Tells the server how much room there is; it decides. */
    const offer = (): void => {
      const wanted = guest ? null : screen.wanted();
      if (wanted) socket.say({ type: "resize", ...wanted });
      screen.squeeze();
    };
    const address = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${terminalPath(terminal)}/ws`;
    const drive = (mode: Mode): void => {
      driving.now = mode === "driver";
      screen.terminal.options.disableStdin = mode !== "driver";
      screen.framed = mode !== "driver";
      change({ mode });
    };
    const socket = new TerminalSocket(
      address,
      preferred.name,
      guest ? "viewer" : "driver",
      browserWorld(terminal, guest ? "guest" : "owner"),
      {
        link: (link) => change({ link }),
        step(step) {
          switch (step.do) {
            case "hello":
              change({
                driver: step.driver,
                live: step.live,
                title: step.title,
                ...(step.live && { exit: null }),
              });
              drive(step.mode);
              return offer();
            case "picture":
              change({ size: { cols: step.cols, rows: step.rows } });
              return screen.picture(step.cols, step.rows, step.bytes);
            case "write":
              return screen.write(step.bytes);
            case "resize":
              change({ size: { cols: step.cols, rows: step.rows } });
              return screen.resize(step.cols, step.rows);
            case "gap":
              return screen.remark(`${step.to - step.from} bytes of output were not kept`);
            case "title":
              return change({ title: step.title });
            case "notice":
              return say(step.text);
            case "driver":
              return change({ driver: step.driver });
            case "mode":
              drive(step.mode);
              if (step.mode === "driver") offer();
              return;
            case "exit":
              return change({
                live: false,
                exit:
                  step.signal !== null
                    ? `ended by signal ${step.signal}`
                    : `ended with exit code ${step.code ?? "unknown"}`,
              });
            case "refused":
              return say(step.detail || step.code);
          }
        },
      },
    );
    held.current = { screen, socket };
    screen.open(box.current!);
    if (focus) screen.focus();
    const observer = new ResizeObserver(() => offer());
    observer.observe(box.current!);
    return () => {
      observer.disconnect();
      held.current = null;
      socket.close();
      screen.dispose();
    };
  }, [terminal]);

  useEffect(() => {
    if (held.current) held.current.screen.theme = dark ? themes.dark : themes.light;
  }, [dark]);
  useEffect(() => {
    const now = held.current;
    if (!now) return;
    now.screen.fontSize = preferred.fontSize;
    const wanted = guest ? null : now.screen.wanted();
    if (wanted) now.socket.say({ type: "resize", ...wanted });
  }, [preferred.fontSize]);
  useEffect(() => {
    if (held.current) held.current.screen.screenReader = preferred.screenReader;
  }, [preferred.screenReader]);

  useEffect(() => {
    // Whoever resumed it: what was let go while it was paused comes back.
    if (!paused && held.current?.socket.link.state === "paused") held.current.socket.retry();
  }, [paused]);

  const { socket, screen } = held.current ?? {};
  const drives = standing.mode === "driver";
  const copy = (text: string): void => {
    if (text === "") {
      say("There is nothing to copy.");
      return;
    }
    void navigator.clipboard.writeText(text).then(
      () => say("Copied."),
      () => say("The browser does not allow copying."),
    );
  };
  const paste = (): void =>
    void navigator.clipboard.readText().then(
      (text) => {
        screen?.paste(text);
        screen?.focus();
      },
      () => say("The browser does not allow reading the clipboard; use its own paste."),
    );
  const keys = (event: KeyboardEvent): void => {
    if (event.ctrlKey && event.shiftKey && event.code === "KeyF") {
      event.preventDefault();
      setFinding(true);
    } else if (event.ctrlKey && event.shiftKey && event.code === "KeyC") {
      event.preventDefault();
      copy(screen?.selection() ?? "");
    }
  };

  return (
    <section
      class="terminal"
      aria-label={`Terminal ${label}`}
      onKeyDownCapture={keys}
      data-terminal={terminal}
      data-link={standing.link.state}
      data-mode={standing.mode}
    >
      <header class="terminal-head">
        <span class="terminal-title" title={standing.title || label}>
          {standing.title || label}
        </span>
        <Driver standing={standing} />
        {guest ? null : drives ? (
          <Button tone="plain" onClick={() => socket?.say({ type: "hand_back" })}>
            Hand back
          </Button>
        ) : (
          <Button
            tone="main"
            disabled={standing.link.state !== "connected"}
            onClick={() => {
              socket?.say({ type: "take_over" });
              screen?.focus();
            }}
          >
            Take over
          </Button>
        )}
        <span class="tools">
          <button
            type="button"
            class="button ghost"
            title="Search (Ctrl-Shift-F)"
            aria-label="Search in the terminal"
            onClick={() => setFinding(!finding)}
          >
            <Icon name="search" />
          </button>
          <button
            type="button"
            class="button ghost roomy-only"
            title="Copy the selection (Ctrl-Shift-C)"
            aria-label="Copy the selection"
            onClick={() => copy(screen?.selection() ?? "")}
          >
            <Icon name="copy" />
          </button>
          {!guest && (
            <button
              type="button"
              class="button ghost roomy-only"
              title="Paste"
              aria-label="Paste"
              disabled={!drives}
              onClick={paste}
            >
              <Icon name="paste" />
            </button>
          )}
          {onShare && (
            <button
              type="button"
              class="button ghost roomy-only"
              title="Share a read-only link"
              aria-label="Share a read-only link"
              onClick={onShare}
            >
              <Icon name="share" />
            </button>
          )}
          {!guest && (
            <Menu
              label="Send a signal"
              items={SIGNALS.map((signal) => ({
                label: `SIG${signal}`,
                ...(signal === "KILL" && { tone: "danger" as const }),
                run: () =>
                  void attempt(
                    () => send("POST", `${terminalPath(terminal)}/signal`, { signal }),
                    `SIG${signal} was sent.`,
                  ),
              }))}
            >
              <Icon name="signal" />
            </Menu>
          )}
          <Menu
            label="More for this terminal"
            items={[
              { label: "Larger text", run: () => prefer({ fontSize: preferred.fontSize + 1 }) },
              { label: "Smaller text", run: () => prefer({ fontSize: preferred.fontSize - 1 }) },
              {
                label: preferred.screenReader ? "Screen reader mode off" : "Screen reader mode on",
                run: () => prefer({ screenReader: !preferred.screenReader }),
              },
              { label: "Copy the selection", run: () => copy(screen?.selection() ?? "") },
              { label: "Copy the whole text", run: () => copy(screen?.wholeText() ?? "") },
              ...(guest ? [] : [{ label: "Paste", disabled: !drives, run: paste }]),
              { label: "Download the recording", run: () => download(terminal) },
              ...(onShare ? [{ label: "Share a read-only link…", run: onShare }] : []),
              ...(onClose ? [{ label: "Close this pane", run: onClose }] : []),
            ]}
          >
            <Icon name="more" />
          </Menu>
        </span>
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
      <div class={`terminal-frame${drives ? "" : " watching"}`}>
        <div ref={box} class="terminal-box" />
        <LinkState
          link={standing.link}
          paused={paused}
          retry={() => socket?.retry()}
          resume={resume && (() => resume().then(() => socket?.retry()))}
        />
      </div>
      <footer class="terminal-foot">
        {hover ? (
          <span class="target">opens {hover}</span>
        ) : (
          <span>{standing.exit ?? (standing.live ? "" : "not running; the next use starts it again")}</span>
        )}
        <span class="size">{standing.size ? `${standing.size.cols}×${standing.size.rows}` : ""}</span>
      </footer>
    </section>
  );
}

function Driver({ standing }: { standing: Standing }) {
  if (standing.mode === "driver") return <Badge tone="good">you drive</Badge>;
  if (standing.driver) return <Badge tone="busy">{standing.driver} drives, you watch</Badge>;
  return <Badge tone="quiet">nobody drives, you watch</Badge>;
}

interface LinkProps {
  link: Link;
  paused: boolean;
  retry: () => void;
  resume: (() => Promise<unknown>) | undefined;
}

function LinkState({ link, paused, retry, resume }: LinkProps) {
  const now = useNow(500);
  if (link.state === "paused" || (paused && link.state === "connected")) {
    return (
      <div class="link-state paused" role="status">
        <span>Paused. Nothing runs until it is resumed.</span>
        {resume && (
          <Button tone="main" onClick={resume}>
            Resume
          </Button>
        )}
      </div>
    );
  }
  if (link.state === "connected") return null;
  return (
    <div class={`link-state ${link.state}`} role="status">
      <span>{linkWords(link, now)}</span>
      {(link.state === "waiting" || link.state === "offline") && <Button onClick={retry}>Try now</Button>}
    </div>
  );
}

const ENDED = {
  gone: "This terminal is no more.",
  signed_out: "Signed out. `stead login` prints a new link.",
  share_over: "This link has ended. What you see is the last that came.",
};

function linkWords(link: Link, now: number): string {
  switch (link.state) {
    case "connecting":
      return "Connecting…";
    case "waiting": {
      const left = Math.ceil((link.at - now) / 1000);
      return `Connection lost. Trying again ${left > 0 ? `in ${left} s` : "now"}.`;
    }
    case "offline":
      return "This device is offline. Keys are not sent.";
    case "catching_up":
      return "A lot of output; catching up…";
    case "ended":
      return ENDED[link.why];
    case "connected":
    case "paused":
      return "";
  }
}

function Find({ screen, close }: { screen: Screen | undefined; close: () => void }) {
  const field = useRef<HTMLInputElement>(null);
  const [found, setFound] = useState<boolean | null>(null);
  useLayoutEffect(() => field.current?.focus(), []);
  const look = (direction: "next" | "previous"): void =>
    void screen
      ?.find(field.current?.value ?? "", direction)
      .then((any) => setFound(field.current?.value ? any : null));
  return (
    <form
      class="find"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        look("previous");
      }}
      onKeyDown={(event) => {
        if (event.key !== "Escape") return;
        event.stopPropagation();
        void screen?.find("", "next");
        close();
      }}
    >
      <input
        ref={field}
        type="search"
        placeholder="Search the scrollback"
        aria-label="Search the scrollback"
        onInput={() => look("previous")}
      />
      <span class="quiet-text" role="status">
        {found === false ? "not found" : ""}
      </span>
      <Button onClick={() => look("previous")}>Up</Button>
      <Button onClick={() => look("next")}>Down</Button>
      <Button onClick={close}>Done</Button>
    </form>
  );
}

/** Lets the browser save the recording under a name of ours. */
export function download(terminal: string): void {
  const link = document.createElement("a");
  link.href = `${terminalPath(terminal)}/recording`;
  link.download = `${terminal}.cast`;
  link.click();
}
