/**
 * Draws a terminal with xterm. The only module that uses xterm's API; it does not know the socket.
 *
 * Tasks run strictly in order: a resize waits until the bytes before it are drawn, because xterm parses bytes
 * later but resizes immediately.
 */

import { FitAddon } from "@xterm/addon-fit";
import type { SearchAddon } from "@xterm/addon-search";
import { WebLinksAddon } from "@xterm/addon-web-links";
import { type ITheme, Terminal } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import { muteAnswers } from "./answers.ts";
import { limitCounts } from "./limits.ts";
import { webAddress } from "./links.ts";
import { NOTIFICATIONS } from "./osc.ts";
import { nextFrame, pacer } from "./pacer.ts";
import { hasHiddenParts, isGuarded, type PasteGuard, pasteText } from "./paste.ts";
import { installStylePolicy } from "./policy.ts";
import { throttleScrollbar } from "./scrollbar.ts";
import { MATCH_COLOURS } from "./themes.ts";
import { steadUnicode } from "./unicode.ts";
import { WholeCharacters } from "./utf8.ts";

/** The font of terminals unless the person prefers another. */
const SYSTEM_FONTS =
  'ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace';

const fontStack = (preferred: string): string =>
  preferred === "" ? SYSTEM_FONTS : `"${preferred}", ${SYSTEM_FONTS}`;

export interface ScreenSettings {
  fontSize: number;
  /** The name of a font; empty for the system's. */
  fontFamily: string;
  theme: ITheme;
  screenReader: boolean;
  scrollback: number;
  pasteGuard: PasteGuard;
}

export interface Search {
  direction: "next" | "previous";
  letters: "same case" | "any case";
}

/** The matches of a search. */
export interface Matches {
  /** At most `MAX_MATCHES`. */
  count: number;
  /** The number of the selected match, from 1; 0 if it is unknown. */
  at: number;
}

export interface ScreenEvents {
  /** Typed, pasted or mouse input. */
  input(bytes: Uint8Array): void;
  /** `bytes` more were drawn. */
  drawn(bytes: number): void;
  /** The pointer is over this link; null when it leaves. */
  link(address: string | null): void;
  /** A link was clicked whose text may differ from its target. */
  openLink(address: string): void;
  /** The size of a cell changed, and with it how many fit. */
  remeasured(): void;
  /** The program sent a notification. */
  notified(text: string): void;
  /** Several lines or hidden characters are about to be pasted. */
  confirmPaste(text: string, go: () => void): void;
  /** The person selected a text with the pointer. */
  selected(text: string): void;
}

type Task = { write: Uint8Array } | { run: () => void };

const MIN_FONT_SIZE = 6;
/** Matches of a search that are counted and marked. */
export const MAX_MATCHES = 1000;
/** Bytes per write to xterm, which parses them in one task. */
const WRITE_BYTES = 16 << 10;
/** Writes up to this size are not paced. */
const UNPACED_BYTES = 4 << 10;
/** With more terminals on the page, those without the focus draw less often. */
const MAX_EAGER_SCREENS = 4;
/** The time between two draws of such a terminal. */
const CROWD_INTERVAL_MS = 250;
const encoder = new TextEncoder();

/** The terminals on the page. */
const onPage = new Set<Screen>();

export class Screen {
  readonly terminal: Terminal;
  readonly #fit = new FitAddon();
  readonly #events: ScreenEvents;
  readonly #tasks: Task[] = [];
  readonly #characters = new WholeCharacters();
  #drawing = false;
  #search: Promise<SearchAddon> | null = null;
  #fontSize: number;
  #box: HTMLElement | null = null;
  #framed = false;
  #disposed = false;
  #timer: ReturnType<typeof setTimeout> | null = null;
  #matches: Matches = { count: 0, at: 0 };
  #letters: Search["letters"] = "any case";
  pasteGuard: PasteGuard;

  constructor(settings: ScreenSettings, events: ScreenEvents) {
    installStylePolicy();
    this.#events = events;
    this.#fontSize = settings.fontSize;
    this.pasteGuard = settings.pasteGuard;
    this.terminal = new Terminal({
      allowProposedApi: true,
      cursorBlink: false,
      fontFamily: fontStack(settings.fontFamily),
      fontSize: settings.fontSize,
      lineHeight: 1.15,
      minimumContrastRatio: 4.5,
      scrollback: settings.scrollback,
      screenReaderMode: settings.screenReader,
      theme: settings.theme,
      linkHandler: {
        activate: (_event, address) => {
          const safe = webAddress(address);
          if (safe) events.openLink(safe);
        },
        hover: (_event, address) => events.link(webAddress(address)),
        leave: () => events.link(null),
      },
    });
    const { terminal } = this;
    terminal.loadAddon(this.#fit);
    terminal.loadAddon(
      new WebLinksAddon(
        (_event, address) => {
          const safe = webAddress(address);
          // The text is the target, so no confirmation is needed.
          if (safe) window.open(safe, "_blank", "noopener,noreferrer");
        },
        { hover: (_event, address) => events.link(webAddress(address)), leave: () => events.link(null) },
      ),
    );
    terminal.unicode.register(steadUnicode);
    terminal.unicode.activeVersion = steadUnicode.version;
    muteAnswers(terminal);
    limitCounts(terminal, nextFrame);
    for (const [code, textOf] of NOTIFICATIONS) {
      terminal.parser.registerOscHandler(code, (data) => {
        const text = textOf(data);
        if (text !== null) events.notified(text);
        return true;
      });
    }
    terminal.onData((data) => events.input(encoder.encode(data)));
    terminal.onBinary((data) => events.input(Uint8Array.from(data, (char) => char.charCodeAt(0) & 0xff)));
  }

  /** Puts the screen into the page. */
  open(box: HTMLElement): void {
    this.#box = box;
    onPage.add(this);
    this.terminal.open(box);
    throttleScrollbar(this.terminal);
    // Before xterm's own listener, which would paste the text unchecked.
    box.addEventListener("paste", this.#onPaste, { capture: true });
    box.addEventListener("pointerdown", this.#onPointerDown);
    box.addEventListener("focusin", this.#drawNow);
    void this.#accelerate();
  }

  dispose(): void {
    this.#disposed = true;
    onPage.delete(this);
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#tasks.length = 0;
    this.#box?.removeEventListener("paste", this.#onPaste, { capture: true });
    this.#box?.removeEventListener("pointerdown", this.#onPointerDown);
    this.#box?.removeEventListener("focusin", this.#drawNow);
    this.terminal.dispose();
  }

  /** Replaces everything by a picture of that size. */
  picture(cols: number, rows: number, bytes: Uint8Array): void {
    // Queued writes are older than the picture; their bytes count as drawn.
    for (const task of this.#tasks.splice(0)) {
      if ("write" in task) this.#events.drawn(task.write.length);
    }
    this.#enqueue({
      run: () => {
        this.#characters.clear();
        this.terminal.reset();
        this.terminal.resize(cols, rows);
        this.#fitFont();
      },
    });
    this.#enqueue({ write: bytes });
  }

  write(bytes: Uint8Array): void {
    this.#enqueue({ write: bytes });
  }

  /** Takes over the server's size. */
  resize(cols: number, rows: number): void {
    this.#enqueue({
      run: () => {
        this.terminal.resize(cols, rows);
        this.#fitFont();
      },
    });
  }

  /** Writes a line that the program did not print. */
  remark(text: string): void {
    this.write(encoder.encode(`\r\n\x1b[7m ${text} \x1b[0m\r\n`));
  }

  /** Columns and rows that fill the box at the preferred font size. */
  wanted(): { cols: number; rows: number } | null {
    const { fontSize } = this.terminal.options;
    if (fontSize !== this.#fontSize) this.terminal.options.fontSize = this.#fontSize;
    const wanted = this.#fit.proposeDimensions();
    if (!wanted || !Number.isFinite(wanted.cols) || !Number.isFinite(wanted.rows)) return null;
    return { cols: Math.max(2, wanted.cols), rows: Math.max(1, wanted.rows) };
  }

  /** Uses the preferred font size, or a smaller one if the server's size does not fit the box. */
  fitFont(): void {
    this.#enqueue({ run: () => this.#fitFont() });
  }

  /** Whether the element is as large as the cells, so that it can be centred, or as large as the box. */
  set framed(framed: boolean) {
    this.#framed = framed;
    this.fitFont();
  }

  set fontSize(size: number) {
    this.#fontSize = size;
    this.fitFont();
  }

  set fontFamily(name: string) {
    this.terminal.options.fontFamily = fontStack(name);
    this.fitFont();
  }

  set theme(theme: ITheme) {
    this.terminal.options.theme = theme;
  }

  set screenReader(on: boolean) {
    this.terminal.options.screenReaderMode = on;
  }

  focus(): void {
    this.terminal.focus();
  }

  selection(): string {
    return this.terminal.getSelection();
  }

  /** The whole text, scrollback included. */
  wholeText(): string {
    const { active } = this.terminal.buffer;
    let text = "";
    for (let row = 0; row < active.length; row += 1) {
      const line = active.getLine(row);
      if (!line) continue;
      if (row > 0 && !line.isWrapped) text += "\n";
      text += line.translateToString(!active.getLine(row + 1)?.isWrapped);
    }
    return text.trimEnd();
  }

  /** Pastes a text, after confirmation if it is risky. */
  paste(text: string): void {
    const { clean, lines } = pasteText(text);
    const go = (): void => this.terminal.paste(clean);
    const bracketed = this.terminal.modes.bracketedPasteMode;
    if (isGuarded(this.pasteGuard, lines, bracketed) || hasHiddenParts(text))
      this.#events.confirmPaste(clean, go);
    else go();
  }

  /** Searches the scrollback; the add-on is loaded on first use. */
  async find(text: string, { direction, letters }: Search): Promise<Matches> {
    this.#search ??= import("@xterm/addon-search").then(({ SearchAddon }) => {
      const search = new SearchAddon({ highlightLimit: MAX_MATCHES });
      if (!this.#disposed) this.terminal.loadAddon(search);
      search.onDidChangeResults(({ resultIndex, resultCount }) => {
        this.#matches = { count: resultCount, at: resultIndex + 1 };
      });
      return search;
    });
    const search = await this.#search;
    const none = { count: 0, at: 0 };
    if (this.#disposed) return none;
    if (text === "") {
      search.clearDecorations();
      this.terminal.clearSelection();
      return none;
    }
    this.#matches = none;
    // The add-on 0.16.0 compares the options with themselves, and would keep the matches of the others.
    if (letters !== this.#letters) search.clearDecorations();
    this.#letters = letters;
    const options = { caseSensitive: letters === "same case", decorations: MATCH_COLOURS };
    const found = direction === "next" ? search.findNext(text, options) : search.findPrevious(text, options);
    return found ? { ...this.#matches, count: Math.max(1, this.#matches.count) } : none;
  }

  #onPointerDown = (event: PointerEvent): void => {
    if (event.button !== 0) return;
    // The selection may end outside the box.
    const up = (): void => {
      const text = this.#disposed ? "" : this.terminal.getSelection();
      if (text !== "") this.#events.selected(text);
    };
    document.addEventListener("mouseup", up, { once: true });
  };

  #onPaste = (event: ClipboardEvent): void => {
    const text = event.clipboardData?.getData("text/plain");
    if (text === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    this.paste(text);
  };

  #enqueue(task: Task): void {
    this.#tasks.push(task);
    // Many terminals that draw in every frame leave no time for keys.
    const isEager = onPage.size <= MAX_EAGER_SCREENS || this.#box?.contains(document.activeElement);
    if (isEager || "run" in task) this.#drawNow();
    else this.#timer ??= setTimeout(this.#drawNow, CROWD_INTERVAL_MS);
  }

  #drawNow = (): void => {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    this.#pump();
  };

  /** Runs queued tasks until a write is in progress; its completion calls this again. */
  #pump(): void {
    while (!this.#drawing && !this.#disposed) {
      const task = this.#tasks[0];
      if (!task) return;
      if ("run" in task) {
        this.#tasks.shift();
        task.run();
      } else {
        this.#draw(this.#piece());
      }
    }
  }

  /** The next bytes to draw: small chunks joined, a large one cut. */
  #piece(): Uint8Array {
    const parts: Uint8Array[] = [];
    let length = 0;
    for (let task = this.#tasks[0]; task && "write" in task && length < WRITE_BYTES; task = this.#tasks[0]) {
      const part = task.write.subarray(0, WRITE_BYTES - length);
      if (part.length === task.write.length) this.#tasks.shift();
      else task.write = task.write.subarray(part.length);
      parts.push(part);
      length += part.length;
    }
    if (parts.length === 1) return parts[0]!;
    const whole = new Uint8Array(length);
    let at = 0;
    for (const part of parts) {
      whole.set(part, at);
      at += part.length;
    }
    return whole;
  }

  #draw(piece: Uint8Array): void {
    this.#drawing = true;
    const draw = (done: () => void): void => {
      if (this.#disposed) {
        done();
        return;
      }
      this.terminal.write(this.#characters.push(piece), () => {
        this.#drawing = false;
        this.#events.drawn(piece.length);
        done();
        this.#pump();
      });
    };
    // The echo of a key does not wait behind other terminals.
    if (piece.length <= UNPACED_BYTES && this.#tasks.length === 0) draw(() => {});
    else pacer.pace(draw);
  }

  #fitFont(): void {
    const box = this.#box;
    const size = this.#fontSize;
    if (!box || box.clientWidth === 0) return;
    const { options, cols, rows } = this.terminal;
    if (options.fontSize !== size) options.fontSize = size;
    const fits = this.#fit.proposeDimensions();
    if (!fits || !Number.isFinite(fits.cols) || fits.cols < 1) return;
    const factor = Math.min(1, fits.cols / cols, fits.rows / rows);
    const smaller = Math.max(MIN_FONT_SIZE, Math.floor(size * factor * 2) / 2);
    if (smaller !== options.fontSize) options.fontSize = smaller;
    this.#frame();
  }

  #frame(): void {
    const { element } = this.terminal;
    const cells = element?.querySelector<HTMLElement>(".xterm-screen");
    if (!element || !cells) return;
    element.style.width = this.#framed ? cells.style.width : "";
    element.style.height = this.#framed ? cells.style.height : "";
  }

  /** Draws with WebGL where available, else with xterm's DOM renderer. */
  async #accelerate(): Promise<void> {
    try {
      const { WebglAddon } = await import("@xterm/addon-webgl");
      if (this.#disposed) return;
      const webgl = new WebglAddon();
      webgl.onContextLoss(() => {
        webgl.dispose();
        this.#events.remeasured();
      });
      this.terminal.loadAddon(webgl);
      this.#events.remeasured();
    } catch {
      // Without WebGL the DOM renderer stays.
    }
  }
}
