/** What a command that waits for input asks. */

import { useEffect, useState } from "preact/hooks";
import { promptOf } from "../lib/last-line.ts";
import { get, path } from "./client.ts";
import type { Command } from "./types.ts";

/**
 * The unfinished line that a waiting command has written; empty if there is none. The screen shows lines of a
 * command when they are complete, so a prompt is only in the command's output.
 */
export function usePrompt(waiting: string | null): string {
  const [prompt, setPrompt] = useState("");
  useEffect(() => {
    setPrompt("");
    if (waiting === null) return;
    let here = true;
    void get<Command>(path("api", "commands", waiting)).then(
      (receipt) => here && setPrompt(promptOf(receipt)),
      () => {},
    );
    return () => {
      here = false;
    };
  }, [waiting]);
  return prompt;
}
