/** Plays a recording: play and pause, speed, a time bar with markers of commands, links to a moment. */

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { prefer, useDark, usePreferences } from "../lib/preferences.ts";
import { type Recording, shortenPauses } from "../lib/recording.ts";
import { type Marker, markerAt, momentOf, neighbour, positionAt } from "../lib/replay.ts";
import { clock, duration } from "../lib/time.ts";
import { outcome } from "../lib/timeline.ts";
import { Screen } from "../terminal/screen.ts";
import { terminalTheme } from "../terminal/themes.ts";
import { toast } from "../ui/dialogs.tsx";
import { Icon } from "../ui/icons.tsx";
import { Badge } from "../ui/parts.tsx";
import "./player.css";

const SPEEDS = [0.5, 1, 2, 5, 10, 50];
/** Longer idle times are shortened to this when they are skipped. */
const MAX_IDLE_SECONDS = 2;
/** How far the arrow keys move. */
const SEEK_SECONDS = 5;

/** A moment of a recording, for its address. */
export interface ReplayMoment {
  /** The offset in the terminal's output, if it is known. */
  offset: number | null;
  time: string | null;
}

interface Props {
  recording: Recording;
  markers: Marker[];
  /** The number of events to show first. */
  from: number;
  addressOf: (moment: ReplayMoment) => string;
  /** Downloads the recording. */
  save: () => void;
}

export function Player({ recording, markers, from, addressOf, save }: Props) {
  const { events } = recording;
  const { skipIdle } = usePreferences();
  const pace = useMemo(
    () => shortenPauses(events, skipIdle ? MAX_IDLE_SECONDS : Number.POSITIVE_INFINITY),
    [events, skipIdle],
  );
  const [position, setPosition] = useState(from);
  const [moment, setMoment] = useState(() => momentOf(pace.times, from));
  const [playing, setPlaying] = useState(false);
  const [speed, setSpeed] = useState(1);
  const box = useScreen(recording, position);
  // Read by the frames while it plays.
  const at = useRef(moment);
  at.current = moment;

  const jump = (to: number): void => {
    setPosition(to);
    setMoment(momentOf(pace.times, to));
  };
  const seek = (to: number): void => {
    const within = Math.min(pace.length, Math.max(0, to));
    setMoment(within);
    setPosition(within === 0 ? 0 : positionAt(pace.times, within));
  };
  const paused = (act: () => void): void => {
    setPlaying(false);
    act();
  };
  const toggle = (): void => {
    if (!playing && position >= events.length) jump(0);
    setPlaying(!playing);
  };
  const toCommand = (direction: "next" | "previous"): void => {
    const to = neighbour(markers, position, direction);
    if (to !== null) paused(() => jump(to));
  };

  // The same point, on the other time scale.
  useLayoutEffect(() => setMoment(momentOf(pace.times, position)), [pace]);
  // A layout effect, so that no frame is played after the pause button was pressed.
  useLayoutEffect(() => {
    if (!playing) return;
    let before = performance.now();
    let frame = requestAnimationFrame(function next() {
      const now = performance.now();
      const to = at.current + ((now - before) / 1000) * speed;
      before = now;
      if (to >= pace.length) {
        jump(events.length);
        setPlaying(false);
        return;
      }
      at.current = to;
      setMoment(to);
      setPosition((drawn) => Math.max(drawn, positionAt(pace.times, to)));
      frame = requestAnimationFrame(next);
    });
    return () => cancelAnimationFrame(frame);
  }, [playing, speed, pace]);

  const keys = (event: KeyboardEvent): void => {
    const target = event.target as Element;
    if (target.closest("select") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "ArrowLeft") paused(() => seek(moment - SEEK_SECONDS));
    else if (event.key === "ArrowRight") paused(() => seek(moment + SEEK_SECONDS));
    else if (event.key === "[") toCommand("previous");
    else if (event.key === "]") toCommand("next");
    else if (event.key === " " && !target.closest("button, input[type=checkbox]")) toggle();
    else return;
    event.preventDefault();
  };

  const last = position > 0 ? events[position - 1] : undefined;
  const second = last?.at ?? 0;
  const time = recording.began === null ? null : new Date(recording.began + second * 1000).toISOString();
  const copyLink = (): void => {
    const offset = last && "output" in last ? last.end : null;
    void navigator.clipboard.writeText(location.origin + addressOf({ offset, time })).then(
      () => toast("Link to this moment copied."),
      () => toast("Couldn't copy: the browser denies access to the clipboard."),
    );
  };
  const current = markers[markerAt(markers, position)];
  return (
    <section class="player" aria-label="Replay" onKeyDown={keys}>
      <div class="terminal-frame">
        <div ref={box} class="terminal-box" />
      </div>
      <div class="player-controls">
        <div class="track">
          <Marks markers={markers} pace={pace} jump={(to) => paused(() => jump(to))} />
          <input
            type="range"
            min={0}
            max={pace.length}
            step="any"
            value={moment}
            aria-label="Position"
            aria-valuetext={`${duration(second * 1000)} of ${duration(recording.length * 1000)}`}
            onInput={(event) => {
              const to = event.currentTarget.valueAsNumber;
              paused(() => seek(to));
            }}
          />
        </div>
        <div class="player-bar">
          <span class="player-buttons">
            <CommandStep direction="previous" markers={markers} position={position} go={toCommand} />
            <button
              type="button"
              class="button main"
              aria-label={playing ? "Pause" : "Play"}
              title={playing ? "Pause (Space)" : "Play (Space)"}
              onClick={toggle}
            >
              <Icon name={playing ? "pause" : "play"} />
            </button>
            <CommandStep direction="next" markers={markers} position={position} go={toCommand} />
          </span>
          <span class="player-time" data-position={position}>
            {duration(second * 1000)} / {duration(recording.length * 1000)}{" "}
            <span class="quiet-text wide-only">{clock(time, Date.now())}</span>
          </span>
          <Caption marker={current} />
          <span class="player-options">
            <CommandChoice markers={markers} current={current} jump={(to) => paused(() => jump(to))} />
            <label class="check">
              <input
                type="checkbox"
                checked={skipIdle}
                onChange={(event) => prefer({ skipIdle: event.currentTarget.checked })}
              />
              <span>Skip idle time</span>
            </label>
            <label class="inline">
              <span class="hidden-text">Speed</span>
              <select value={String(speed)} onChange={(event) => setSpeed(Number(event.currentTarget.value))}>
                {SPEEDS.map((one) => (
                  <option key={one} value={String(one)}>
                    {one}×
                  </option>
                ))}
              </select>
            </label>
            <button
              type="button"
              class="button"
              aria-label="Copy link"
              title="Copy a link that opens the replay here"
              onClick={copyLink}
            >
              <Icon name="share" />
              <span class="wide-only">Copy link</span>
              <span class="phone-only">Link</span>
            </button>
            <button
              type="button"
              class="button ghost"
              aria-label="Download asciicast"
              title="Download asciicast"
              onClick={save}
            >
              <Icon name="download" />
            </button>
          </span>
        </div>
      </div>
    </section>
  );
}

/** A screen that shows the first `position` events. */
function useScreen(recording: Recording, position: number): { current: HTMLDivElement | null } {
  const box = useRef<HTMLDivElement>(null);
  const held = useRef<{ screen: Screen; drawn: number } | null>(null);
  const dark = useDark();
  const preferred = usePreferences();
  const theme = terminalTheme(preferred.terminalTheme, dark);
  useEffect(() => {
    const nothing = (): void => {};
    const screen = new Screen(
      {
        fontSize: preferred.fontSize,
        fontFamily: preferred.fontFamily,
        theme,
        screenReader: preferred.screenReader,
        scrollback: 1000,
        pasteGuard: "always",
      },
      {
        input: nothing,
        drawn: nothing,
        link: nothing,
        openLink: nothing,
        confirmPaste: nothing,
        notified: nothing,
        selected: nothing,
        remeasured: () => held.current?.screen.fitFont(),
      },
    );
    screen.terminal.options.disableStdin = true;
    screen.open(box.current!);
    screen.framed = true;
    held.current = { screen, drawn: -1 };
    const observer = new ResizeObserver(() => screen.fitFont());
    observer.observe(box.current!);
    return () => {
      observer.disconnect();
      held.current = null;
      screen.dispose();
    };
  }, []);
  useEffect(() => {
    if (held.current) held.current.screen.theme = theme;
  }, [theme]);

  // Forward: write the events that were added. Backward: start over.
  useEffect(() => {
    const now = held.current;
    if (!now || now.drawn === position) return;
    const encoder = new TextEncoder();
    if (now.drawn < 0 || now.drawn > position) {
      now.screen.picture(recording.cols, recording.rows, new Uint8Array(0));
      now.drawn = 0;
    }
    let text = "";
    for (const event of recording.events.slice(now.drawn, position)) {
      if ("output" in event) {
        text += event.output;
        continue;
      }
      if (text !== "") now.screen.write(encoder.encode(text));
      text = "";
      now.screen.resize(event.cols, event.rows);
    }
    if (text !== "") now.screen.write(encoder.encode(text));
    now.drawn = position;
  }, [position]);
  return box;
}

interface MarksProps {
  markers: Marker[];
  pace: { times: number[]; length: number };
  jump: (position: number) => void;
}

/** The commands on the time bar. The list of commands is the way to them by keyboard. */
function Marks({ markers, pace, jump }: MarksProps) {
  return (
    <div class="marks">
      {markers.map(({ position, command }) => {
        const { text, tone } = outcome(command);
        const part = pace.length > 0 ? momentOf(pace.times, position) / pace.length : 0;
        return (
          <button
            key={command.command_id}
            type="button"
            class={`mark-command ${tone}`}
            tabIndex={-1}
            style={{ left: `${part * 100}%` }}
            aria-label={`Jump to ${command.command}`}
            title={`${command.command}\n${text}`}
            onClick={() => jump(position)}
          />
        );
      })}
    </div>
  );
}

interface StepProps {
  direction: "next" | "previous";
  markers: Marker[];
  position: number;
  go: (direction: "next" | "previous") => void;
}

function CommandStep({ direction, markers, position, go }: StepProps) {
  const label = direction === "next" ? "Next command" : "Previous command";
  return (
    <button
      type="button"
      class="button ghost"
      aria-label={label}
      title={`${label} (${direction === "next" ? "]" : "["})`}
      disabled={neighbour(markers, position, direction) === null}
      onClick={() => go(direction)}
    >
      <Icon name={direction} />
    </button>
  );
}

/** The command that runs or ran last at the current position. */
function Caption({ marker }: { marker: Marker | undefined }) {
  if (!marker) return <span class="player-command quiet-text">Before the first command</span>;
  const { text, tone } = outcome(marker.command);
  return (
    <span class="player-command">
      <code title={marker.command.command}>{marker.command.command}</code>
      <Badge tone={tone}>{text}</Badge>
    </span>
  );
}

interface ChoiceProps {
  markers: Marker[];
  current: Marker | undefined;
  jump: (position: number) => void;
}

/** Characters of a command in the list of commands. */
const MAX_CHOICE_LENGTH = 60;

function CommandChoice({ markers, current, jump }: ChoiceProps) {
  if (markers.length === 0) return null;
  const shortened = (text: string): string => {
    const line = text.replace(/\s+/g, " ").trim();
    return line.length > MAX_CHOICE_LENGTH ? `${line.slice(0, MAX_CHOICE_LENGTH)}…` : line;
  };
  return (
    <label class="inline">
      <span class="hidden-text">Jump to a command</span>
      <select
        class="command-choice"
        value={current?.command.command_id ?? ""}
        onChange={(event) => {
          const id = event.currentTarget.value;
          const chosen = markers.find(({ command }) => command.command_id === id);
          if (chosen) jump(chosen.position);
        }}
      >
        <option value="" disabled>
          Jump to a command
        </option>
        {markers.map(({ command }) => (
          <option key={command.command_id} value={command.command_id}>
            {shortened(command.command)} · {outcome(command).text}
          </option>
        ))}
      </select>
    </label>
  );
}
