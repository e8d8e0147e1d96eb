/** The command box under a terminal: runs a command as the exec API does, with exact output and exit code. */

import { useRef, useState } from "preact/hooks";
import { describe, path, send } from "../api/client.ts";
import type { Command } from "../api/types.ts";
import { duration } from "../lib/time.ts";
import { outcome } from "../lib/timeline.ts";
import { Badge } from "../ui/parts.tsx";
import { Output } from "./output.tsx";

/** How long the request waits for the command to end; a longer command keeps running in the background. */
const YIELD_MS = 20_000;

export function ExecBox({
  terminal,
  label,
  among,
  onFailed,
}: {
  terminal: string;
  label: string;
  /** How many terminals are shown side by side. */
  among: number;
  onFailed: (text: string) => void;
}) {
  const [busy, setBusy] = useState(false);
  const [last, setLast] = useState<Command | null>(null);
  const [text, setText] = useState("");
  const past = useRef<string[]>([]);
  const at = useRef(0);

  const run = async (): Promise<void> => {
    const command = text;
    if (command.trim() === "" || busy) return;
    setBusy(true);
    past.current = [...past.current.filter((one) => one !== command), command].slice(-100);
    at.current = past.current.length;
    try {
      const done = await send<Command>("POST", path("api", "terminals", terminal, "exec"), {
        command,
        yield_ms: YIELD_MS,
        max_output_bytes: 65_536,
      });
      setLast({ ...done, command });
      setText("");
    } catch (error) {
      onFailed(`Couldn't run the command. ${describe(error)}`);
    } finally {
      setBusy(false);
    }
  };
  const keys = (event: KeyboardEvent): void => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      void run();
    } else if ((event.key === "ArrowUp" || event.key === "ArrowDown") && !text.includes("\n")) {
      const next = at.current + (event.key === "ArrowUp" ? -1 : 1);
      if (next < 0 || next > past.current.length) return;
      event.preventDefault();
      at.current = next;
      setText(past.current[next] ?? "");
    }
  };

  const ended = last && outcome(last);
  return (
    <div class="exec">
      {last && ended && (
        <details class="receipt">
          <summary>
            <Badge tone={ended.tone}>{ended.text}</Badge>
            {last.duration_ms !== null && <span class="quiet-text">{duration(last.duration_ms)}</span>}
            <code class="cut">{last.command}</code>
          </summary>
          <Output command={last} />
        </details>
      )}
      <div class="exec-line">
        <span class="prompt" aria-hidden="true">
          {among > 1 && <span class="exec-target">{label}</span>}❯
        </span>
        <textarea
          rows={Math.min(6, text.split("\n").length)}
          value={text}
          placeholder={among > 1 ? `Run a command in ${label}` : "Run a command in this shell"}
          aria-label={`Command to run in ${label}`}
          spellcheck={false}
          autocapitalize="off"
          autocomplete="off"
          disabled={busy}
          onInput={(event) => setText(event.currentTarget.value)}
          onKeyDown={keys}
        />
        <button
          type="button"
          class="button main"
          disabled={busy || text.trim() === ""}
          onClick={() => void run()}
        >
          {busy ? "Running…" : "Run"}
        </button>
      </div>
    </div>
  );
}
