/** Calls the person when something waits for them, wherever they are in the app. */

import { useEffect, useRef } from "preact/hooks";
import { onEvent } from "./api/events.ts";
import type { Handoff, Thread } from "./api/types.ts";
import { addedTo, kindText } from "./lib/handoff.ts";
import { preferences } from "./lib/preferences.ts";
import { type Route, threadAddress } from "./lib/router.ts";
import { notify } from "./ui/notifications.ts";

/** Notifies the person of commands that begin to wait for input, and of requests of agents. */
export function useAttention(route: Route, threads: Thread[], handoffs: Handoff[] | undefined): void {
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
  const latest = useRef({ route, threads });
  latest.current = { route, threads };
  useEffect(
    () =>
      onEvent((event) => {
        if (event.name !== "command_waiting" || event.waiting !== true) return;
        if (!preferences().notify.waiting) return;
        const { route: shown, threads: all } = latest.current;
        const thread = all.find((one) => one.terminal_id === event.terminal)?.thread_id;
        if (thread === undefined) return;
        // The thread's own page shows it already.
        const watched = shown.view === "thread" && shown.thread === thread;
        if (watched && document.visibilityState === "visible") return;
        notify({
          source: thread,
          text: "A command waits for input.",
          address: threadAddress(thread),
          tag: `waiting ${thread}`,
        });
      }),
    [],
  );
}
