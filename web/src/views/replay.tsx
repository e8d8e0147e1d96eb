/** The replay of a terminal: loads its recording and its commands, and starts where the address says. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { describe, getText, list, path } from "../api/client.ts";
import type { Command, Terminal } from "../api/types.ts";
import { eventsBefore, parseRecording, type Recording, secondOf } from "../lib/recording.ts";
import { cutAtAll, markersOf, positionAtOffset } from "../lib/replay.ts";
import { threadAddress } from "../lib/router.ts";
import { terminalPath } from "../protocol/environment.ts";
import { download } from "../terminal/view.tsx";
import { Empty } from "../ui/parts.tsx";
import { Player, type ReplayMoment } from "./player.tsx";
import { terminalLabel } from "./terminals.tsx";

/** Commands that have a marker, from the latest back. */
const MAX_MARKERS = 500;

interface Props {
  thread: string;
  terminals: Terminal[];
  terminal: string | null;
  /** The offset to start at, or the time where no offset is known. */
  offset: number | null;
  at: string | null;
}

interface Loaded {
  id: string;
  recording: Recording | null;
  commands: Command[];
  error: string | null;
}

/** The recording of a terminal and the commands in it; null until they are loaded. */
function useRecording(id: string | null): Loaded | null {
  const [loaded, setLoaded] = useState<Loaded | null>(null);
  useEffect(() => {
    if (!id) return;
    let here = true;
    const address = `${path("api", "terminals", id, "commands")}?limit=${MAX_MARKERS}`;
    Promise.all([
      getText(`${terminalPath(id)}/recording?offsets=true`),
      // Without the commands there are no markers, but the recording can be played.
      list<Command>(address, MAX_MARKERS).catch((): Command[] => []),
    ]).then(
      ([text, commands]) => here && setLoaded({ id, recording: parseRecording(text), commands, error: null }),
      (error: unknown) => here && setLoaded({ id, recording: null, commands: [], error: describe(error) }),
    );
    return () => {
      here = false;
    };
  }, [id]);
  return loaded?.id === id ? loaded : null;
}

export function ReplayView({ thread, terminals, terminal, offset, at }: Props) {
  const [chosen, setChosen] = useState<string | null>(null);
  const id = chosen ?? terminal ?? terminals[0]?.terminal_id ?? null;
  const loaded = useRecording(id);
  // Another terminal has other offsets.
  const here = chosen === null || chosen === terminal;
  const scene = useMemo(
    () =>
      loaded?.recording && sceneOf(loaded.recording, loaded.commands, here ? offset : null, here ? at : null),
    [loaded],
  );
  if (!id) return <NothingRecorded thread={thread} />;
  const addressOf = ({ offset: end, time }: ReplayMoment): string =>
    threadAddress(thread, "replay", {
      terminal: id,
      ...(time !== null && { at: time }),
      ...(end !== null && { offset: String(end) }),
    });
  return (
    <div class="replay-view">
      {terminals.length > 1 && (
        <div class="bar">
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
        </div>
      )}
      {!loaded && <p class="bar quiet-text">Loading the recording…</p>}
      {loaded?.error && (
        <p class="failure" role="alert">
          {loaded.error}
        </p>
      )}
      {scene &&
        (scene.recording.events.length === 0 ? (
          <NothingRecorded thread={thread} />
        ) : (
          <Player key={id} {...scene} addressOf={addressOf} save={() => download(id)} />
        ))}
    </div>
  );
}

/** The recording, cut at the starts of commands, and the number of events to show first. */
function sceneOf(recording: Recording, commands: Command[], offset: number | null, at: string | null) {
  const starts = commands.flatMap(({ offset_start: start }) => (typeof start === "number" ? [start] : []));
  const events = cutAtAll(recording.events, offset === null ? starts : [...starts, offset]);
  const from = offset === null ? null : positionAtOffset(events, offset);
  const second = at ? secondOf(recording, at) : recording.length;
  return {
    recording: { ...recording, events },
    markers: markersOf(recording, events, commands),
    from: from ?? eventsBefore(events, second),
  };
}

function NothingRecorded({ thread }: { thread: string }) {
  return (
    <Empty title="No recording yet." command={`stead exec --thread ${thread} -- 'echo hello'`}>
      <p>Every terminal is recorded from its first output. Run a command, then return here:</p>
    </Empty>
  );
}
