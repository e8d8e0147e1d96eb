/** The browser as the environment of a `TerminalSocket`. */

import { get, isProblem, path } from "../api/client.ts";
import type { Lease, Terminal } from "../api/types.ts";
import type { Environment } from "./socket.ts";

/** The path of a terminal in the API. */
export const terminalPath = (terminal: string): string => `/api/terminals/${encodeURIComponent(terminal)}`;

/** Why the owner cannot connect. */
async function ownerFailure(terminal: string): ReturnType<Environment["failureReason"]> {
  try {
    const { lease_id } = await get<Terminal>(terminalPath(terminal));
    const lease = await get<Lease>(path("api", "leases", lease_id));
    return lease.instance?.state === "paused" ? "paused" : "unknown";
  } catch (error) {
    if (isProblem(error, 401)) return "signed_out";
    if (isProblem(error, 404)) return "gone";
    return "unknown";
  }
}

/** Why a guest cannot connect. */
async function guestFailure(terminal: string): ReturnType<Environment["failureReason"]> {
  try {
    await get(`${terminalPath(terminal)}/share`);
    return "unknown";
  } catch (error) {
    return [401, 403, 404].some((status) => isProblem(error, status)) ? "share_over" : "unknown";
  }
}

/** The environment of a terminal's socket. A guest has a share link. */
export function browserEnvironment(terminal: string, role: "owner" | "guest"): Environment {
  return {
    open: (address) => new WebSocket(address),
    failureReason: () => (role === "owner" ? ownerFailure(terminal) : guestFailure(terminal)),
    setTimer(milliseconds, callback) {
      const timer = setTimeout(callback, milliseconds);
      return () => clearTimeout(timer);
    },
    now: () => Date.now(),
    random: () => Math.random(),
    online: () => navigator.onLine,
    watchNetwork(listener) {
      const on = () => listener(true);
      const off = () => listener(false);
      const seen = () => {
        if (document.visibilityState === "visible" && navigator.onLine) listener(true);
      };
      addEventListener("online", on);
      addEventListener("offline", off);
      document.addEventListener("visibilitychange", seen);
      return () => {
        removeEventListener("online", on);
        removeEventListener("offline", off);
        document.removeEventListener("visibilitychange", seen);
      };
    },
  };
}
