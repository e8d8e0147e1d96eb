/** The browser as `TerminalSocket` sees it. */

import { get, isProblem, path } from "../api/client.ts";
import type { Lease, Terminal } from "../api/types.ts";
import type { World } from "./socket.ts";

/** The path of a terminal in the API. */
export const terminalPath = (terminal: string): string => `/api/terminals/${encodeURIComponent(terminal)}`;

/** Why one's own terminal cannot be connected to. */
async function whyOwn(terminal: string): ReturnType<World["why"]> {
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

/** Why a shared one cannot. */
async function whyShared(terminal: string): ReturnType<World["why"]> {
  try {
    await get(`${terminalPath(terminal)}/share`);
    return "unknown";
  } catch (error) {
    return [401, 403, 404].some((status) => isProblem(error, status)) ? "share_over" : "unknown";
  }
}

/** The world of one terminal's socket, for its owner or for somebody with a share link. */
export function browserWorld(terminal: string, who: "owner" | "guest"): World {
  return {
    open: (address) => new WebSocket(address),
    why: () => (who === "owner" ? whyOwn(terminal) : whyShared(terminal)),
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
