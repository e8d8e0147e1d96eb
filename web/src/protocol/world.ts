/** The browser as `TerminalSocket` sees it. */

import { get, isProblem, path } from "../api/client.ts";
import type { Lease, Terminal } from "../api/types.ts";
import type { World } from "./socket.ts";

/** The path of a terminal in the API. */
export const terminalPath = (terminal: string): string => `/api/terminals/${encodeURIComponent(terminal)}`;

/** The world of one terminal's socket. */
export function browserWorld(terminal: string): World {
  return {
    open: (address) => new WebSocket(address),
    async why() {
      try {
        const { lease_id } = await get<Terminal>(terminalPath(terminal));
        const lease = await get<Lease>(path("api", "leases", lease_id));
        return lease.instance?.state === "paused" ? "paused" : "unknown";
      } catch (error) {
        if (isProblem(error, 401)) return "signed_out";
        if (isProblem(error, 404)) return "gone";
        return "unknown";
      }
    },
    after(milliseconds, act) {
      const timer = setTimeout(act, milliseconds);
      return () => clearTimeout(timer);
    },
    now: () => Date.now(),
    random: () => Math.random(),
    online: () => navigator.onLine,
    watchNetwork(act) {
      const on = () => act(true);
      const off = () => act(false);
      const seen = () => {
        if (document.visibilityState === "visible" && navigator.onLine) act(true);
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
