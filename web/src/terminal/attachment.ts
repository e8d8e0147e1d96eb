/**
 * Joins the screen of a terminal to its socket: output and state go to the page, keys and sizes to the
 * server.
 */

import { preferences } from "../lib/preferences.ts";
import { browserEnvironment, terminalPath } from "../protocol/environment.ts";
import type { Mode, Step } from "../protocol/protocol.ts";
import { type Link, TerminalSocket } from "../protocol/socket.ts";
import { ask, toast } from "../ui/dialogs.tsx";
import { notify } from "../ui/notifications.ts";
import type { Exit } from "./exit.ts";
import { Screen, type ScreenSettings } from "./screen.ts";

/** What the page shows of a terminal besides its screen. */
export interface TerminalState {
  link: Link;
  mode: Mode;
  /** The name of the client that has control. */
  driver: string | null;
  title: string;
  live: boolean;
  /** How the program ended. */
  exit: Exit | null;
  size: { cols: number; rows: number } | null;
}

export const INITIAL_STATE: TerminalState = {
  link: { state: "connecting" },
  mode: "viewer",
  driver: null,
  title: "",
  live: true,
  exit: null,
  size: null,
};

export interface AttachmentOptions {
  terminal: string;
  label: string;
  /** The name that other clients see. */
  name: string;
  /** `guest` has a share link and can only watch. */
  role: "owner" | "guest";
  settings: ScreenSettings;
  onChange(change: Partial<TerminalState>): void;
  /** The pointer is over this link; null when it leaves. */
  onHover(address: string | null): void;
  /** The person selected a text with the pointer. */
  onSelected(text: string): void;
}

export class Attachment {
  readonly screen: Screen;
  readonly socket: TerminalSocket;
  readonly #options: AttachmentOptions;
  readonly #observer = new ResizeObserver(() => this.offerSize());
  #inControl = false;

  constructor(options: AttachmentOptions) {
    this.#options = options;
    const { terminal, name, role, settings, onChange } = options;
    this.screen = new Screen(settings, {
      input: (bytes) => {
        if (this.#inControl) this.socket.input(bytes);
      },
      drawn: (bytes) => this.socket.drawn(bytes),
      link: options.onHover,
      remeasured: () => this.offerSize(),
      openLink: (address) => void openAfterAsking(address),
      notified: (text) => {
        if (preferences().notify.programs) notify({ source: options.label, text });
      },
      selected: options.onSelected,
      confirmPaste: (text, go) => void pasteAfterAsking(text, go),
    });
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const address = `${scheme}://${location.host}${terminalPath(terminal)}/ws`;
    const mode = role === "guest" ? "viewer" : "driver";
    this.socket = new TerminalSocket(address, name, mode, browserEnvironment(terminal, role), {
      link: (link) => onChange({ link }),
      step: (step) => this.#apply(step),
    });
  }

  /** Puts the screen into the page. */
  open(box: HTMLElement): void {
    this.screen.open(box);
    this.#observer.observe(box);
  }

  close(): void {
    this.#observer.disconnect();
    this.socket.close();
    this.screen.dispose();
  }

  /** Reports how many cells fit into the box; the server decides on the size. */
  offerSize(): void {
    const wanted = this.#options.role === "guest" ? null : this.screen.wanted();
    if (wanted) this.socket.send({ type: "resize", ...wanted });
    this.screen.fitFont();
  }

  #setMode(mode: Mode): void {
    this.#inControl = mode === "driver";
    this.screen.terminal.options.disableStdin = mode !== "driver";
    this.screen.framed = mode !== "driver";
    this.#options.onChange({ mode });
  }

  #apply(step: Step): void {
    const { onChange } = this.#options;
    switch (step.do) {
      case "hello":
        onChange({
          driver: step.driver,
          live: step.live,
          title: step.title,
          ...(step.live && { exit: null }),
        });
        this.#setMode(step.mode);
        this.offerSize();
        break;
      case "picture":
        onChange({ size: { cols: step.cols, rows: step.rows } });
        this.screen.picture(step.cols, step.rows, step.bytes);
        break;
      case "write":
        this.screen.write(step.bytes);
        break;
      case "resize":
        onChange({ size: { cols: step.cols, rows: step.rows } });
        this.screen.resize(step.cols, step.rows);
        break;
      case "gap":
        this.screen.remark(`${step.to - step.from} bytes of output were not kept`);
        break;
      case "title":
        onChange({ title: step.title });
        break;
      case "notice":
        toast(step.text);
        break;
      case "driver":
        onChange({ driver: step.driver });
        break;
      case "mode":
        this.#setMode(step.mode);
        if (step.mode === "driver") this.offerSize();
        break;
      case "exit":
        onChange({ live: false, exit: { code: step.code, signal: step.signal } });
        break;
      case "refused":
        toast(step.detail || step.code);
        break;
      case "alive":
      case "broken":
        // The socket handles these itself.
        break;
    }
  }
}

async function openAfterAsking(address: string): Promise<void> {
  const yes = await ask({ title: "Open this link?", sample: address, action: "Open" });
  if (yes) window.open(address, "_blank", "noopener,noreferrer");
}

async function pasteAfterAsking(text: string, paste: () => void): Promise<void> {
  const yes = await ask({
    title: "Paste this text?",
    text: "It has several lines or hidden characters. Each line may run as soon as it is pasted.",
    sample: text,
    action: "Paste",
  });
  if (yes) paste();
}
