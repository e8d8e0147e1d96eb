/** Addresses of the app's views, all under `/ui/`. */

import { useEffect, useState } from "preact/hooks";

export type ThreadTab = "terminals" | "timeline" | "files" | "versions" | "replay";

export type Route =
  | { view: "now" }
  | { view: "inbox" }
  | { view: "search"; text: string }
  | { view: "threads"; filter: string }
  | { view: "thread"; thread: string; tab: ThreadTab; query: URLSearchParams }
  | { view: "sandboxes" }
  | { view: "projects" }
  | { view: "leases" }
  | { view: "metrics" }
  | { view: "settings" }
  /** Opened by a share link. Without a terminal, the secret is still in the address. */
  | { view: "shared"; terminal: string | null }
  | { view: "not_found"; path: string };

const TABS: readonly ThreadTab[] = ["terminals", "timeline", "files", "versions", "replay"];

/** Parses an address into a view. */
export function routeOf(pathname: string, search = ""): Route {
  const parts = pathname.split("/").filter((part) => part !== "");
  if (parts[0] === "ui") parts.shift();
  const [view, id, tab, ...rest] = parts;
  if (rest.length > 0) return { view: "not_found", path: pathname };
  switch (view) {
    case undefined:
      return { view: "now" };
    case "threads": {
      if (id === undefined)
        return { view: "threads", filter: new URLSearchParams(search).get("filter") ?? "" };
      let thread: string;
      try {
        thread = decodeURIComponent(id);
      } catch {
        return { view: "not_found", path: pathname };
      }
      const known = TABS.find((one) => one === (tab ?? "terminals"));
      if (!known) return { view: "not_found", path: pathname };
      return { view: "thread", thread, tab: known, query: new URLSearchParams(search) };
    }
    case "share":
      return id === undefined ? { view: "shared", terminal: null } : { view: "not_found", path: pathname };
    case "shared":
      return id !== undefined && tab === undefined
        ? { view: "shared", terminal: id }
        : { view: "not_found", path: pathname };
    case "search":
      return id === undefined
        ? { view, text: new URLSearchParams(search).get("q") ?? "" }
        : { view: "not_found", path: pathname };
    case "now":
    case "inbox":
    case "sandboxes":
    case "projects":
    case "leases":
    case "metrics":
    case "settings":
      return id === undefined ? { view } : { view: "not_found", path: pathname };
    default:
      return { view: "not_found", path: pathname };
  }
}

/** The address of a thread's view. */
export function threadAddress(
  thread: string,
  tab: ThreadTab = "terminals",
  query?: Record<string, string>,
): string {
  const end = tab === "terminals" ? "" : `/${tab}`;
  const search = query ? `?${new URLSearchParams(query)}` : "";
  return `/ui/threads/${encodeURIComponent(thread)}${end}${search}`;
}

/** The address of a search in the commands and the output of all threads. */
export const searchAddress = (text: string): string => `/ui/search?${new URLSearchParams({ q: text })}`;

const listeners = new Set<() => void>();

/** Navigates within the app, without loading a page. */
export function go(address: string, how: "push" | "replace" = "push"): void {
  if (how === "push") history.pushState(null, "", address);
  else history.replaceState(null, "", address);
  for (const act of listeners) act();
}

/** The current view. */
export function useRoute(): Route {
  const [route, setRoute] = useState(() => routeOf(location.pathname, location.search));
  useEffect(() => {
    const update = (): void => setRoute(routeOf(location.pathname, location.search));
    const click = (event: MouseEvent): void => {
      if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey)
        return;
      const link = (event.target as Element | null)?.closest?.("a");
      const href = link?.getAttribute("href");
      if (!link || !href?.startsWith("/ui") || link.target === "_blank") return;
      event.preventDefault();
      go(href);
    };
    listeners.add(update);
    addEventListener("popstate", update);
    document.addEventListener("click", click);
    return () => {
      listeners.delete(update);
      removeEventListener("popstate", update);
      document.removeEventListener("click", click);
    };
  }, []);
  return route;
}
