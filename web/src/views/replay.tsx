/** Plays the recording of a terminal: play, pause, speed, seek. */

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { describe, getText } from "../api/client.ts";
import type { Terminal } from "../api/types.ts";
import { useDark, usePreferences } from "../lib/preferences.ts";
import {
  cutAt,
  eventsBefore,
  parseRecording,
  type Recording,
  secondOf,
  shortenPauses,
} from "../lib/recording.ts";
import { clock, duration } from "../lib/time.ts";
import { terminalPath } from "../protocol/environment.ts";
import { Screen } from "../terminal/screen.ts";
import { themes } from "../terminal/themes.ts";
import { download } from "../terminal/view.tsx";
import { Icon } from "../ui/icons.tsx";
import { Button, Empty } from "../ui/parts.tsx";
import { terminalLabel } from "./terminals.tsx";

const SPEEDS = [0.5, 1, 2, 5, 10, 50];
/** Longer pauses are shortened to this. */
const MAX_PAUSE_SECONDS = 2;

interface Props {
  terminals: Terminal[];
  terminal: string | null;
  /** The offset to start at, or the time where no offset is known. */
  offset: number | null;
  at: string | null;
}

export function ReplayView({ terminals, terminal, offset, at }: Props) {
  const [chosen, setChosen] = useState<string | null>(null);
  const [loaded, setLoaded] = useState<{
    id: string;
    recording: Recording | null;
    error: string | null;
  } | null>(null);
  const id = chosen ?? terminal ?? terminals[0]?.terminal_id ?? null;
  useEffect(() => {
    if (!id) return;
    let here = true;
    getText(`${terminalPath(id)}/recording?offsets=true`).then(
      (text) => here && setLoaded({ id, recording: parseRecording(text), error: null }),
      (error: unknown) => here && setLoaded({ id, recording: null, error: describe(error) }),
    );
    return () => {
      here = false;
    };
  }, [id]);
  if (!id) return <NothingRecorded />;
  return (
    <div class="replay-view">
      <div class="bar">
        {terminals.length > 1 && (
          <label class="inline">
            <span>Terminal</span>
            <select value={id} onChange={(event) => setChosen(event.currentTarget.value)}>
              {terminals.map((one, index) => (
                <option key={one.terminal_id} value={one.terminal_id}>
                  {terminalLabel(one, index)}
                </option>
              ))}
            </select>
          </label>
        )}
        <Button onClick={() => download(id)}>Download asciicast</Button>
      </div>
      {loaded?.id !== id && <p class="quiet-text">Loading the recording…</p>}
      {loaded?.id === id && loaded.error && (
        <p class="failure" role="alert">
          {loaded.error}
        </p>
      )}
      {loaded?.id === id && loaded.recording && (
        <Player key={id} {...startAt(loaded.recording, offset, at)} />
      )}
    </div>
  );
}

/** The recording, and the number of events to show first: up to an offset, a time, or the end. */
function startAt(
  recording: Recording,
  offset: number | null,
  at: string | null,
): { recording: Recording; from: number } {
  const cut = offset === null ? null : cutAt(recording.events, offset);
  if (cut) return { recording: { ...recording, events: cut.events }, from: cut.before };
  const second = at ? secondOf(recording, at) : recording.length;
  return { recording, from: eventsBefore(recording.events, second) };
}

function Player({ recording, from }: { recording: Recording; from: number }) {
  const { events } = recording;
  const [pace] = useState(() => shortenPauses(events, MAX_PAUSE_SECONDS));
  const [position, setPosition] = useState(from);
  const [playing, setPlaying] = useState(false);
  const [speed, setSpeed] = useState(1);
  const box = useRef<HTMLDivElement>(null);
  const held = useRef<{ screen: Screen; drawn: number } | null>(null);
  const dark = useDark();
  const preferred = usePreferences();

  useEffect(() => {
    const nothing = (): void => {};
    const screen = new Screen(
      {
        fontSize: preferred.fontSize,
        theme: dark ? themes.dark : themes.light,
        screenReader: preferred.screenReader,
        scrollback: 1000,
      },
      {
        input: nothing,
        drawn: nothing,
        link: nothing,
        openLink: nothing,
        confirmPaste: nothing,
        notified: nothing,
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
    if (held.current) held.current.screen.theme = dark ? themes.dark : themes.light;
  }, [dark]);

  // Forward: write the new events. Backward: start over.
  useEffect(() => {
    const now = held.current;
    if (!now || now.drawn === position) return;
    const encoder = new TextEncoder();
    if (now.drawn < 0 || now.drawn > position) {
      now.screen.picture(recording.cols, recording.rows, new Uint8Array(0));
      now.drawn = 0;
    }
    let text = "";
    for (const event of events.slice(now.drawn, position)) {
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

  // A layout effect, so that no frame is played after the pause button was pressed.
  useLayoutEffect(() => {
    if (!playing) return;
    if (position >= events.length) return setPlaying(false);
    const began = performance.now();
    const start = position > 0 ? pace.times[position - 1]! : 0;
    let frame = requestAnimationFrame(function next() {
      const moment = start + ((performance.now() - began) / 1000) * speed;
      let to = position;
      while (to < events.length && pace.times[to]! <= moment) to += 1;
      if (to > position) setPosition(to);
      else frame = requestAnimationFrame(next);
    });
    return () => cancelAnimationFrame(frame);
  }, [playing, position, speed]);

  const second = position > 0 ? events[position - 1]!.at : 0;
  const when =
    recording.began === null
      ? ""
      : clock(new Date(recording.began + second * 1000).toISOString(), Date.now());
  if (events.length === 0) return <NothingRecorded />;
  return (
    <section class="player" aria-label="Replay">
      <div class="terminal-frame">
        <div ref={box} class="terminal-box" />
      </div>
      <div class="player-bar">
        <button
          type="button"
          class="button main"
          aria-label={playing ? "Pause" : "Play"}
          onClick={() => {
            if (!playing && position >= events.length) setPosition(0);
            setPlaying(!playing);
          }}
        >
          <Icon name={playing ? "pause" : "play"} />
        </button>
        <input
          type="range"
          min={0}
          max={events.length}
          value={position}
          aria-label="Position"
          aria-valuetext={`${duration(second * 1000)} of ${duration(recording.length * 1000)}`}
          onInput={(event) => {
            setPlaying(false);
            setPosition(Number(event.currentTarget.value));
          }}
        />
        <span class="player-time" data-position={position}>
          {duration(second * 1000)} / {duration(recording.length * 1000)}{" "}
          <span class="quiet-text wide-only">{when}</span>
        </span>
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
      </div>
    </section>
  );
}

function NothingRecorded() {
  return (
    <Empty title="No recording yet.">
      <p>Every terminal is recorded from its first output. Run a command in it, then return here.</p>
    </Empty>
  );
}
