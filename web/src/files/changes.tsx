/** What the last command changed in the workspace: a list of files, and the difference of each. */

import { useEffect, useState } from "preact/hooks";
import { linesBetween, nearChanges } from "../lib/diff.ts";
import type { FileChange } from "../lib/file-changes.ts";
import { plural } from "../lib/time.ts";
import { Button } from "../ui/parts.tsx";
import { fileHistory, type LastChanges } from "./history.ts";

const MAX_LISTED = 100;
const SIGNS = { added: "+", changed: "~", removed: "−" } as const;

/** What the last command changed; `changes` rises with every change of a file. */
export function useLastChanges(thread: string, changes: number): LastChanges | null {
  const [last, setLast] = useState<LastChanges | null>(null);
  useEffect(() => {
    const history = fileHistory(thread);
    setLast(history.last);
    return history.listen(() => setLast(history.last));
  }, [thread]);
  useEffect(() => {
    if (changes > 0) fileHistory(thread).changed();
  }, [changes]);
  return last;
}

export function ChangeList({ last, onOpen }: { last: LastChanges; onOpen: (change: FileChange) => void }) {
  const { command, files, isCompared, isPartial } = last;
  return (
    <details class="file-changes" open={files.length > 0}>
      <summary title={command}>
        Last command: {files.length === 0 ? "no file changed" : `${plural(files.length, "file")} changed`}
      </summary>
      <p class="quiet-text">
        <code>{command}</code>
      </p>
      <ul>
        {files.slice(0, MAX_LISTED).map((change) => (
          <li key={change.path}>
            <button
              type="button"
              class={`file-change ${change.kind}`}
              title={change.path}
              onClick={() => onOpen(change)}
            >
              <span aria-hidden="true">{SIGNS[change.kind]}</span>
              <span class="hidden-text">{change.kind}</span>
              <span class="tree-name">{change.path.replace("/workspace/", "")}</span>
            </button>
          </li>
        ))}
      </ul>
      {files.length > MAX_LISTED && <p class="quiet-text">…and {files.length - MAX_LISTED} more.</p>}
      {!isCompared && files.length > 0 && (
        <p class="quiet-text">It ended before this page read the files. The next command is compared.</p>
      )}
      {isPartial && <p class="quiet-text">The workspace is large; not all of its files are compared.</p>}
    </details>
  );
}

interface ChangeProps {
  change: FileChange;
  command: string;
  onOpenFile: () => void;
  onClose: () => void;
}

export function ChangeView({ change, command, onOpenFile, onClose }: ChangeProps) {
  const { path, kind, before, after } = change;
  const isText =
    kind === "added"
      ? after !== null
      : kind === "removed"
        ? before !== null
        : before !== null && after !== null;
  return (
    <section class="file" aria-label={`Change of ${path}`}>
      <header class="file-head">
        <h2 title={path}>{path}</h2>
        <span class="quiet-text" title={`by ${command}`}>
          {kind}
        </span>
        <span class="tools">
          {kind !== "removed" && <Button onClick={onOpenFile}>Open file</Button>}
          <Button onClick={onClose}>Close</Button>
        </span>
      </header>
      {isText ? (
        <pre tabIndex={0} class="diff file-diff">
          {nearChanges(linesBetween(before ?? "", after ?? ""), 3).map((line, index) => (
            <span key={index} class={line.sign === "+" ? "plus" : line.sign === "-" ? "minus" : ""}>
              {`${line.sign} ${line.text}\n`}
            </span>
          ))}
        </pre>
      ) : (
        <p class="file-other quiet-text">
          Its text before or after is not known: it is not text, it is large, or there are many files.
        </p>
      )}
    </section>
  );
}
