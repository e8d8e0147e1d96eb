/** Small components that views share. */

import type { ComponentChildren, JSX, RefObject } from "preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { describe, isProblem } from "../api/client.ts";
import { ago, clock, elapsed } from "../lib/time.ts";
import { Icon } from "./icons.tsx";

export type Tone = "good" | "warn" | "bad" | "busy" | "quiet";

const MARKS: Record<Tone, string> = { good: "●", warn: "▲", bad: "✕", busy: "◐", quiet: "○" };

/** A state. Its mark differs in shape too, so that colour is never the only sign. */
export function Badge({
  tone,
  children,
  title,
}: {
  tone: Tone;
  children: ComponentChildren;
  title?: string;
}) {
  return (
    <span class={`badge ${tone}`} title={title}>
      <span aria-hidden="true" class="mark">
        {MARKS[tone]}
      </span>
      {children}
    </span>
  );
}

/** The tone of a session's, instance's or terminal's state. */
export function toneOf(state: string | null | undefined): Tone {
  switch (state) {
    case "active":
    case "running":
    case "live":
      return "good";
    case "idle":
    case "paused":
    case "restorable":
      return "warn";
    case "expired":
    case "dead":
    case "failed":
      return "bad";
    case "starting":
    case "creating":
    case "resuming":
    case "pausing":
      return "busy";
    default:
      return "quiet";
  }
}

/** The current time, updated every `every` milliseconds. */
export function useNow(every = 1000): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}

/** How long ago, with the exact time on hover. */
export function Ago({ time }: { time: string | null | undefined }) {
  const now = useNow(5000);
  return (
    <time dateTime={time ?? undefined} title={clock(time, now)}>
      {ago(time, now)}
    </time>
  );
}

/** The time since something began, in whole seconds. */
export function Elapsed({ since }: { since: string | null }) {
  const now = useNow();
  if (since === null) return null;
  return <span class="elapsed">{elapsed(since, now)}</span>;
}

type ButtonProps = Omit<JSX.IntrinsicElements["button"], "onClick"> & {
  onClick?: () => unknown;
  tone?: "plain" | "main" | "danger" | "ghost";
};

/** A button that is disabled while the promise of its action is pending. */
export function Button({ onClick, tone = "plain", disabled, class: extra, children, ...rest }: ButtonProps) {
  const [busy, setBusy] = useState(false);
  const mounted = useRef(true);
  useEffect(
    () => () => {
      mounted.current = false;
    },
    [],
  );
  const act = (): void => {
    const result = onClick?.();
    if (!(result instanceof Promise)) return;
    setBusy(true);
    void result.finally(() => mounted.current && setBusy(false));
  };
  return (
    <button
      type="button"
      class={`button ${tone}${typeof extra === "string" ? ` ${extra}` : ""}`}
      aria-busy={busy}
      disabled={disabled === true || busy}
      onClick={act}
      {...rest}
    >
      {children}
    </button>
  );
}

/** Opens a dialog while it is in the page, and restores the focus afterwards. */
export function useModal(): RefObject<HTMLDialogElement | null> {
  const box = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const dialog = box.current;
    const before = document.activeElement as HTMLElement | null;
    dialog?.showModal();
    return () => {
      // An open modal dialog keeps the focus, so it is closed first.
      dialog?.close();
      before?.focus?.();
    };
  }, []);
  return box;
}

/** An entry of a description list. */
export function Field({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
  );
}

/** Copies a text when clicked. */
export function Copy({ text, label = "Copy" }: { text: string; label?: string }) {
  const [done, setDone] = useState(false);
  useEffect(() => {
    if (!done) return;
    const timer = setTimeout(() => setDone(false), 1500);
    return () => clearTimeout(timer);
  }, [done]);
  return (
    <button
      type="button"
      class="copy"
      aria-label={done ? "Copied" : label}
      title={done ? "Copied" : label}
      onClick={() =>
        void navigator.clipboard?.writeText(text).then(
          () => setDone(true),
          () => {},
        )
      }
    >
      {done ? "✓" : <Icon name="copy" />}
    </button>
  );
}

/** An id, shortened to fit but copied whole. */
export function Id({ id }: { id: string | null | undefined }) {
  if (!id) return <span class="quiet-text">None</span>;
  return (
    <span class="id">
      <code title={id}>{id}</code>
      <Copy text={id} label={`Copy ${id}`} />
    </span>
  );
}

/** The placeholder of an empty list: what to do next, and the command that does it. */
export function Empty({
  title,
  command,
  children,
}: {
  title: string;
  command?: string;
  children?: ComponentChildren;
}) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children}
      {command !== undefined && <CommandLine text={command} />}
    </div>
  );
}

/** A command to run elsewhere, with a button that copies it. */
export function CommandLine({ text }: { text: string }) {
  return (
    <div class="command-line">
      <code>{text}</code>
      <Copy text={text} label="Copy the command" />
    </div>
  );
}

/** Shows why something could not be loaded. */
export function Failure({ error, retry }: { error: unknown; retry?: () => void }) {
  const gone = isProblem(error, 404);
  return (
    <div class="failure" role={gone ? undefined : "alert"}>
      <p>{describe(error)}</p>
      {retry && !gone && <Button onClick={retry}>Try again</Button>}
    </div>
  );
}

export interface MenuItem {
  label: string;
  tone?: "danger";
  disabled?: boolean;
  run(): unknown;
}

interface MenuProps {
  label: string;
  items: MenuItem[];
  /** Where the list opens; below the button by default. */
  side?: "above" | "below";
  children: ComponentChildren;
}

/** A button that opens a list of actions: arrows move, Enter acts, Escape closes. */
export function Menu({ label, items, side = "below", children }: MenuProps) {
  const [open, setOpen] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const id = useId();

  // A layout effect, so that the next key already finds the focus there.
  useLayoutEffect(() => {
    if (!open) return;
    box.current?.querySelector<HTMLButtonElement>("[role=menuitem]:not(:disabled)")?.focus();
    const outside = (event: Event): void => {
      if (!box.current?.parentElement?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener("pointerdown", outside);
    return () => document.removeEventListener("pointerdown", outside);
  }, [open]);

  const close = (): void => {
    setOpen(false);
    button.current?.focus();
  };
  const move = (event: KeyboardEvent): void => {
    const options = [
      ...(box.current?.querySelectorAll<HTMLButtonElement>("[role=menuitem]:not(:disabled)") ?? []),
    ];
    const at = options.indexOf(document.activeElement as HTMLButtonElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: options.length - 1 }[event.key];
    if (event.key === "Escape" || event.key === "Tab") close();
    else if (to !== undefined) options[(to + options.length) % options.length]?.focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  return (
    <span class="menu">
      <button
        ref={button}
        type="button"
        class="button ghost"
        aria-haspopup="menu"
        aria-expanded={open}
        aria-controls={open ? id : undefined}
        aria-label={label}
        title={label}
        onClick={() => setOpen(!open)}
      >
        {children}
      </button>
      {open && (
        <div ref={box} id={id} class={`menu-list ${side}`} role="menu" aria-label={label} onKeyDown={move}>
          {items.map((item) => (
            <button
              key={item.label}
              type="button"
              role="menuitem"
              tabIndex={-1}
              class={item.tone}
              disabled={item.disabled}
              onClick={() => {
                close();
                item.run();
              }}
            >
              {item.label}
            </button>
          ))}
        </div>
      )}
    </span>
  );
}
