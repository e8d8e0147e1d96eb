/** Calls the person when something waits for them, wherever they are in the app. */

import { useEffect, useRef } from "preact/hooks";
import type { Handoff, Thread } from "./api/types.ts";
import { addedTo, kindText } from "./lib/handoff.ts";
import { preferences } from "./lib/preferences.ts";
import { type Route, threadAddress } from "./lib/router.ts";
import { notify } from "./ui/notifications.ts";

/**
 * Notifies the person of commands that begin to wait for input, and of requests of agents. Both follow from the
 * fetched state, not from single events: those can be missed while the page reconnects.
 */
export function useAttention(
  route: Route,
  threads: Thread[] | undefined,
  handoffs: Handoff[] | undefined,
): void {
  const before = useRef<Handoff[] | undefined>(undefined);
  useEffect(() => {
    // Those that were open when the page was opened are no news.
    const added = before.current && handoffs ? addedTo(before.current, handoffs) : [];
    before.current = handoffs ?? before.current;
    if (!preferences().notify.handoffs) return;
    for (const handoff of added) {
      notify({
        source: handoff.thread_id,
        text: `${kindText(handoff.kind)}: ${handoff.reason}`,
        address: threadAddress(handoff.thread_id, "terminals", { show: handoff.terminal_id }),
        tag: handoff.handoff_id,
      });
    }
  }, [handoffs]);
  const waited = useRef<ReadonlySet<string> | undefined>(undefined);
  useEffect(() => {
    if (threads === undefined) return;
    const waiting = new Map<string, { thread: string; terminal: string }>(
      threads.flatMap(({ thread_id, current_commands: commands = [] }) =>
        commands
          .filter((command) => command.waiting_for_input)
          .map(({ command_id, terminal_id }) => [command_id, { thread: thread_id, terminal: terminal_id }]),
      ),
    );
    const earlier = waited.current;
    waited.current = new Set(waiting.keys());
    if (earlier === undefined || !preferences().notify.waiting) return;
    for (const [command, { thread, terminal }] of waiting) {
      // The thread's own page shows it already.
      const watched = route.view === "thread" && route.thread === thread;
      if (earlier.has(command) || (watched && document.visibilityState === "visible")) continue;
      notify({
        source: thread,
        text: "A command waits for input.",
        address: threadAddress(thread, "terminals", { show: terminal }),
        tag: `waiting ${terminal}`,
      });
    }
  }, [threads]);
}
