/** Hand-offs: requests of agents to a person. */

import type { Handoff } from "../api/types.ts";

/** What the agent asks for. */
export const kindText = (kind: Handoff["kind"]): string => {
  switch (kind) {
    case "input":
      return "Input requested";
    case "secret":
      return "Secret requested";
    case "approval":
      return "Approval requested";
  }
};

/** How a hand-off ended, as a text and a tone. */
export function resultOf(handoff: Handoff): { text: string; tone: "good" | "warn" | "bad" | "quiet" } {
  switch (handoff.status) {
    case "open":
      return { text: "open", tone: "warn" };
    case "declined":
      return { text: "declined", tone: "bad" };
    case "expired":
      return { text: "expired", tone: "quiet" };
    case "answered":
      if (handoff.answer?.approve === false) return { text: "not approved", tone: "bad" };
      return { text: handoff.kind === "approval" ? "approved" : "answered", tone: "good" };
  }
}

/** What the person answered besides yes or no. */
export const answerText = ({ answer }: Handoff): string =>
  [answer?.option, answer?.text]
    .filter((part) => part !== undefined && part !== null && part !== "")
    .join(" · ");

/** The open hand-offs of a thread. */
export const ofThread = (handoffs: readonly Handoff[], thread: string): Handoff[] =>
  handoffs.filter((handoff) => handoff.thread_id === thread);

/** The hand-offs that were not there before. */
export const addedTo = (before: readonly Handoff[], after: readonly Handoff[]): Handoff[] =>
  after.filter((handoff) => !before.some((other) => other.handoff_id === handoff.handoff_id));
