/** The panel beside a thread: its timeline, which follows what happens, or its status. */

import { useId } from "preact/hooks";
import type { AppEvent } from "../api/events.ts";
import type { Resource } from "../api/resource.ts";
import type { LastCommand, Lease, Terminal } from "../api/types.ts";
import { type Preferences, prefer, usePreferences } from "../lib/preferences.ts";
import { StatusSections } from "./status.tsx";
import { TimelinePanel } from "./timeline.tsx";

type PanelTab = Preferences["panelTab"];

const TABS: { tab: PanelTab; label: string }[] = [
  { tab: "timeline", label: "Timeline" },
  { tab: "status", label: "Status" },
];

interface Props {
  thread: string;
  lease: Resource<Lease>;
  selected: string | null;
  terminals: Terminal[];
  isAffected: (event: AppEvent) => boolean;
  current: readonly LastCommand[];
  /** Whether the view beside the panel is the timeline itself. */
  statusOnly: boolean;
}

export function SidePanel(props: Props) {
  const { thread, lease, selected, terminals, isAffected, current, statusOnly } = props;
  const { panelTab } = usePreferences();
  const id = useId();
  const shown = statusOnly ? "status" : panelTab;
  const keys = (event: KeyboardEvent): void => {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    event.preventDefault();
    const next: PanelTab = shown === "timeline" ? "status" : "timeline";
    prefer({ panelTab: next });
    document.getElementById(`${id}-${next}`)?.focus();
  };
  return (
    <aside class="panel" aria-label={statusOnly ? "Status" : "Timeline and status"}>
      {!statusOnly && (
        <div class="panel-tabs" role="tablist" aria-label="Side panel" onKeyDown={keys}>
          {TABS.map(({ tab, label }) => (
            <button
              key={tab}
              type="button"
              role="tab"
              id={`${id}-${tab}`}
              aria-selected={tab === shown}
              aria-controls={`${id}-panel`}
              tabIndex={tab === shown ? 0 : -1}
              onClick={() => prefer({ panelTab: tab })}
            >
              {label}
            </button>
          ))}
        </div>
      )}
      <div
        id={`${id}-panel`}
        class={`panel-body with-${shown}`}
        {...(!statusOnly && { role: "tabpanel", "aria-labelledby": `${id}-${shown}` })}
      >
        {shown === "timeline" ? (
          <TimelinePanel thread={thread} terminals={terminals} isAffected={isAffected} current={current} />
        ) : (
          <StatusSections
            thread={thread}
            selected={selected}
            lease={lease}
            terminals={terminals}
            isAffected={isAffected}
          />
        )}
      </div>
    </aside>
  );
}
