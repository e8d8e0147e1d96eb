/** The versions of a terminal's state: compare two, roll back, fork a terminal from one. */

import { useState } from "preact/hooks";
import { get, list, path, send } from "../api/client.ts";
import type { AppEvent } from "../api/events.ts";
import { useResource } from "../api/resource.ts";
import type { Command, Terminal, Version, WholeVersion } from "../api/types.ts";
import { changesBetween, type DiffLine, linesBetween, nearChanges } from "../lib/diff.ts";
import { go, threadAddress } from "../lib/router.ts";
import { maskLine } from "../lib/secrets.ts";
import { sectionsOf } from "../lib/state.ts";
import { plural } from "../lib/time.ts";
import { replayAddress } from "../lib/timeline.ts";
import { causeText, commandOf } from "../lib/version.ts";
import { ask, attempt } from "../ui/dialogs.tsx";
import { Ago, Button, Empty, Failure } from "../ui/parts.tsx";
import { Variable } from "./status.tsx";
import { terminalLabel } from "./terminals.tsx";

/** Commands among which the causes of versions are looked up. */
const MAX_COMMANDS = 3000;

interface Props {
  thread: string;
  /** The terminal to show first; the default one if null. */
  shown: string | null;
  /** The version to compare with the one before it; the latest if null. */
  version: number | null;
  terminals: Terminal[];
  isAffected: (event: AppEvent) => boolean;
}

export function VersionsView({ thread, shown, version: asked, terminals, isAffected }: Props) {
  const [chosen, setChosen] = useState<string | null>(shown);
  const [pair, setPair] = useState<[number, number] | null>(
    asked !== null && asked > 1 ? [asked - 1, asked] : null,
  );
  const terminal = chosen ?? terminals[0]?.terminal_id ?? null;
  const versions = useResource<Version[]>(
    terminal ? `versions ${terminal}` : null,
    () => list<Version>(`${path("api", "terminals", terminal!, "versions")}?limit=100`, 300),
    isAffected,
  );
  const commands = useResource<Command[]>(
    terminal ? `commands of ${terminal}` : null,
    async () => {
      const address = `${path("api", "terminals", terminal!, "commands")}?limit=1000`;
      const found = await list<Command>(address, MAX_COMMANDS);
      return found.map((command) => ({ ...command, terminal_id: terminal! }));
    },
    isAffected,
  );
  const all = [...(versions.value ?? [])].sort((a, b) => b.version - a.version);
  const latest = all[0]?.version;
  const after = pair?.[1] ?? latest;
  const before = pair?.[0] ?? all[1]?.version;

  if (!terminal) return <Empty title="No terminals yet." command={`stead attach ${thread}`} />;
  const rollback = async (version: number): Promise<void> => {
    const yes = await ask({
      title: `Roll back to version ${version}?`,
      text: "A new shell with that state replaces the current one and its programs. Later versions are kept.",
      action: "Roll back",
      danger: true,
    });
    if (!yes) return;
    await attempt(
      "Couldn't roll back.",
      () => send("POST", path("api", "terminals", terminal, "rollback"), { version }),
      `Rolled back to version ${version}.`,
    );
    versions.refresh();
  };
  const fork = async (version: number): Promise<void> => {
    const made = await attempt(
      "Couldn't fork the terminal.",
      () => send<Terminal>("POST", path("api", "terminals", terminal, "fork"), { version }),
      "Forked into a new terminal.",
    );
    if (made) go(threadAddress(thread, "terminals", { show: made.terminal_id }));
  };
  return (
    <div class="versions-view">
      <div class="bar">
        {terminals.length > 1 && (
          <label class="inline">
            <span>Terminal</span>
            <select
              value={terminal}
              onChange={(event) => {
                setChosen(event.currentTarget.value);
                setPair(null);
              }}
            >
              {terminals.map((one, index) => (
                <option key={one.terminal_id} value={one.terminal_id}>
                  {terminalLabel(one, index)}
                </option>
              ))}
            </select>
          </label>
        )}
        <span class="quiet-text">{plural(all.length, "version")}</span>
      </div>
      {versions.error !== undefined && <Failure error={versions.error} retry={versions.refresh} />}
      {versions.value && all.length === 0 && (
        <Empty title="No versions yet." command={`stead exec --thread ${thread} -- 'cd /tmp'`}>
          <p>A command that changes the shell's state creates one:</p>
        </Empty>
      )}
      <div class="versions-split">
        <div class="table-box">
          <table class="table versions">
            <thead>
              <tr>
                <th scope="col">Version</th>
                <th scope="col">Cause</th>
                <th scope="col" class="wide-only">
                  When
                </th>
                <th scope="col">Compare</th>
                <th scope="col">
                  <span class="hidden-text">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {all.map((version) => (
                <tr key={version.version} class={version.version === after ? "chosen" : ""}>
                  <th scope="row">{version.version}</th>
                  <CauseCell version={version} commands={commands.value ?? []} thread={thread} />
                  <td class="wide-only">
                    <Ago time={version.at} />
                  </td>
                  <td class="choose">
                    <input
                      type="radio"
                      name="before"
                      aria-label={`Compare from version ${version.version}`}
                      checked={version.version === before}
                      onChange={() => setPair([version.version, after ?? version.version])}
                    />
                    <input
                      type="radio"
                      name="after"
                      aria-label={`Compare to version ${version.version}`}
                      checked={version.version === after}
                      onChange={() => setPair([before ?? version.version, version.version])}
                    />
                  </td>
                  <td class="row-actions">
                    <Button disabled={version.version === latest} onClick={() => rollback(version.version)}>
                      Roll back
                    </Button>
                    <Button onClick={() => fork(version.version)}>Fork</Button>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
        {before !== undefined && after !== undefined && before !== after && (
          <Comparison
            key={`${terminal} ${before} ${after}`}
            terminal={terminal}
            before={before}
            after={after}
          />
        )}
      </div>
    </div>
  );
}

/** What made a version. A command leads to the replay of the moment at which it ended. */
function CauseCell({ version, commands, thread }: { version: Version; commands: Command[]; thread: string }) {
  const cause = causeText(version, commands);
  const command = commandOf(version, commands);
  return (
    <td class="cut-cell" title={`${cause}\n${version.changed?.join(", ") ?? ""}`}>
      {command ? (
        <a class="cause" href={replayAddress(thread, command)}>
          <code>{command.command}</code>
        </a>
      ) : (
        cause
      )}
    </td>
  );
}

/** All lines of a difference, or only those near changes. */
function shownLines(from: string, to: string, whole: boolean): DiffLine[] {
  const lines = linesBetween(from, to);
  return whole ? lines : nearChanges(lines);
}

function Comparison({ terminal, before, after }: { terminal: string; before: number; after: number }) {
  const both = useResource<[WholeVersion, WholeVersion]>(
    `compare ${terminal} ${before} ${after}`,
    () =>
      Promise.all(
        [before, after].map((version) =>
          get<WholeVersion>(path("api", "terminals", terminal, "versions", String(version))),
        ),
      ) as Promise<[WholeVersion, WholeVersion]>,
    () => false,
  );
  const [secrets, setSecrets] = useState(false);
  const [whole, setWhole] = useState(false);
  if (both.error !== undefined) return <Failure error={both.error} retry={both.refresh} />;
  if (!both.value) return null;
  const [from, to] = both.value;
  const environment = changesBetween(from.env, to.env);
  const old = sectionsOf(from.sections);
  const current = sectionsOf(to.sections);
  const sections = changesBetween(old, current);
  const nothing = environment.length === 0 && sections.length === 0 && from.cwd === to.cwd;
  return (
    <section class="comparison" aria-label={`Changes from version ${before} to ${after}`}>
      <h2>
        Version {before} → {after}
      </h2>
      {nothing && <p class="quiet-text">No differences.</p>}
      {from.cwd !== to.cwd && (
        <p>
          directory <code>{from.cwd}</code> → <code>{to.cwd}</code>
        </p>
      )}
      {environment.length > 0 && (
        <>
          <h3>Environment</h3>
          <ul class="variables">
            {environment.flatMap((change) => [
              ...(change.kind === "added"
                ? []
                : [<Variable key={`- ${change.name}`} sign="−" name={change.name} value={change.from} />]),
              ...(change.kind === "removed"
                ? []
                : [<Variable key={`+ ${change.name}`} sign="+" name={change.name} value={change.to} />]),
            ])}
          </ul>
        </>
      )}
      {sections.map((change) => (
        <details key={change.name} class="section-diff" open>
          <summary>{change.name}</summary>
          <pre tabIndex={0} class="diff">
            {shownLines(old[change.name] ?? "", current[change.name] ?? "", whole).map((line, index) => (
              <span key={index} class={line.sign === "+" ? "plus" : line.sign === "-" ? "minus" : ""}>
                {`${line.sign} ${secrets ? line.text : maskLine(line.text)}\n`}
              </span>
            ))}
          </pre>
        </details>
      ))}
      {sections.length > 0 && (
        <div class="comparison-options">
          <label class="check">
            <input
              type="checkbox"
              checked={whole}
              onChange={(event) => setWhole(event.currentTarget.checked)}
            />
            <span>Show unchanged lines</span>
          </label>
          <label class="check">
            <input
              type="checkbox"
              checked={secrets}
              onChange={(event) => setSecrets(event.currentTarget.checked)}
            />
            <span>Show values that may be secret</span>
          </label>
        </div>
      )}
    </section>
  );
}
