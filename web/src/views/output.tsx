/** A command's output with its colours, as text of the page. */

import { useEffect, useRef, useState } from "preact/hooks";
import { describe, getBytes, path } from "../api/client.ts";
import type { Command } from "../api/types.ts";
import { type Run, runsOf, type Style } from "../lib/ansi.ts";
import { bytes } from "../lib/time.ts";
import { Button, Copy } from "../ui/parts.tsx";

/** Bytes fetched per request. */
const CHUNK_BYTES = 64 << 10;

type Colours = { color?: string; backgroundColor?: string };
type StreamName = "stdout" | "stderr";

function attributesOf(style: Style): { class: string; style: Colours } {
  const classes: string[] = [];
  const css: Colours = {};
  const colours: [string | undefined, "color" | "backgroundColor", string][] = [
    [style.inverse ? (style.bg ?? "palette:ground") : style.fg, "color", "fg"],
    [style.inverse ? (style.fg ?? "palette:text") : style.bg, "backgroundColor", "bg"],
  ];
  for (const [value, property, short] of colours) {
    if (!value) continue;
    if (value.startsWith("palette:")) classes.push(`${short}-${value.slice(8)}`);
    else css[property] = value;
  }
  for (const name of ["bold", "dim", "italic", "underline", "strike"] as const)
    if (style[name]) classes.push(`t-${name}`);
  return { class: classes.join(" "), style: css };
}

/** Styled runs; each is a text node, so nothing in them can become markup. */
export function Runs({ runs }: { runs: Run[] }) {
  return (
    <>
      {runs.map((run, index) =>
        Object.keys(run.style).length === 0 ? (
          run.text
        ) : (
          <span key={index} {...attributesOf(run.style)}>
            {run.text}
          </span>
        ),
      )}
    </>
  );
}

function decoded(command: Command, stream: StreamName): string | null {
  const text = command[stream];
  if (text !== undefined && text !== null) return text;
  const packed = command[`${stream}_base64`];
  if (!packed) return null;
  const raw = Uint8Array.from(atob(packed), (char) => char.charCodeAt(0));
  return new TextDecoder().decode(raw);
}

function OneStream({ command, stream }: { command: Command; stream: StreamName }) {
  const total = command[`${stream}_bytes`];
  const [state, setState] = useState<{ text: string; next: number; end: boolean; error: string | null }>(
    () => {
      const text = decoded(command, stream);
      const whole = text !== null && !command.truncated;
      return { text: whole ? text : "", next: 0, end: whole, error: null };
    },
  );
  // Keeps the character that a chunk ends in for the next one.
  const decoder = useRef(new TextDecoder());
  const more = async (): Promise<void> => {
    try {
      const query = new URLSearchParams({ stream, from: String(state.next), limit: String(CHUNK_BYTES) });
      const { bytes: chunk, headers } = await getBytes(
        `${path("api", "commands", command.command_id, "output")}?${query}`,
      );
      const next = Number(headers.get("x-next-offset") ?? state.next + chunk.length);
      const end = headers.get("x-end") === "true" || chunk.length === 0 || next >= total;
      const text = decoder.current.decode(chunk, { stream: !end });
      setState({ text: state.text + text, next, end, error: null });
    } catch (error) {
      setState({ ...state, error: describe(error) });
    }
  };
  useEffect(() => {
    if (!state.end) void more();
  }, []);
  if (total === 0 && state.text === "") return null;
  return (
    <figure class={`output ${stream}`}>
      <figcaption>
        {stream} <span class="quiet-text">{bytes(total)}</span>{" "}
        <Copy text={state.text} label={`Copy ${stream}`} />
      </figcaption>
      <pre tabIndex={0}>
        <Runs runs={runsOf(state.text)} />
      </pre>
      {state.error && (
        <p class="failure" role="alert">
          {state.error}
        </p>
      )}
      {!state.end && state.text !== "" && (
        <Button onClick={more}>Show more ({bytes(total - state.next)} left)</Button>
      )}
    </figure>
  );
}

/** Both output streams of a command; what the receipt leaves out is fetched. */
export function Output({ command }: { command: Command }) {
  const nothing = command.stdout_bytes === 0 && command.stderr_bytes === 0;
  if (nothing) return <p class="quiet-text output-none">No output.</p>;
  const key = `${command.command_id} ${command.stdout_bytes} ${command.stderr_bytes}`;
  return (
    <>
      <OneStream key={`${key} out`} command={command} stream="stdout" />
      <OneStream key={`${key} err`} command={command} stream="stderr" />
    </>
  );
}
