/** Asks what the programs of a sandbox connected to. */

import { get, path } from "./client.ts";

export interface EgressEntry {
  address: string;
  /** Null if the protocol has no ports. */
  port: number | null;
  protocol: string;
  /** The name for which the rules allow the address. */
  name: string | null;
  verdict: "allowed" | "refused";
  attempts: number;
  last_seen_at: string;
}

export interface EgressLog {
  items: EgressEntry[];
  /** Attempts to reach further destinations, for which the log had no room. */
  unlisted_allowed: number;
  unlisted_refused: number;
}

/** The egress log of a thread's sandbox. One without an instance has an empty log, and is not started. */
export const egressOf = (thread: string): Promise<EgressLog> =>
  get<EgressLog>(path("api", "sandboxes", thread, "egress"));
