/** The frame around the views: navigation, toasts, dialogs and the command palette. */

import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { isProblem, onSignedOut, path, send } from "./api/client.ts";
import { useOpenHandoffs } from "./api/handoffs.ts";
import type { Resource } from "./api/resource.ts";
import { useThreads } from "./api/threads.ts";
import type { Handoff, Thread } from "./api/types.ts";
import { useAttention } from "./attention.ts";
import { mostUrgent, type Overview, pageIcon, pageTitle, useActivity } from "./lib/activity.ts";
import { ofThread } from "./lib/handoff.ts";
import type { Action } from "./lib/palette.ts";
import { prefer, usePreferences } from "./lib/preferences.ts";
import { go, type Route, searchAddress, threadAddress, useRoute } from "./lib/router.ts";
import { asksForShortcuts } from "./lib/shortcuts.ts";
import { isRunning, isWaiting, threadActivity, threadState } from "./lib/thread-state.ts";
import { attempt, DialogHost, ToastHost } from "./ui/dialogs.tsx";
import { Icon, type IconName } from "./ui/icons.tsx";
import { CommandLine, Empty } from "./ui/parts.tsx";
import { ShortcutDialog } from "./ui/shortcuts.tsx";
import { ThreadName, type ThreadNames, ThreadNamesContext, useSandboxNames } from "./ui/thread-name.tsx";
import { InboxView } from "./views/inbox.tsx";
import { LeasesView } from "./views/leases.tsx";
import { MetricsView } from "./views/metrics.tsx";
import { NowView } from "./views/now.tsx";
import { Palette } from "./views/palette.tsx";
import { ProjectsView, useProjects } from "./views/projects.tsx";
import { newSandbox, SandboxesView } from "./views/sandboxes.tsx";
import { SearchView } from "./views/search.tsx";
import { SettingsView } from "./views/settings.tsx";
import { SharedView } from "./views/shared.tsx";
import { newTerminal } from "./views/terminals.tsx";
import { ThreadView } from "./views/thread.tsx";
import { newThread, ThreadsView } from "./views/threads.tsx";

const SECTIONS: {
  view: Route["view"];
  label: string;
  address: string;
  icon: IconName;
  /** Left out on a phone, where the search leads there. */
  isRare?: true;
}[] = [
  { view: "now", label: "Now", address: "/ui/now", icon: "now" },
  { view: "inbox", label: "Inbox", address: "/ui/inbox", icon: "inbox" },
  { view: "threads", label: "Threads", address: "/ui/threads", icon: "threads" },
  { view: "sandboxes", label: "Sandboxes", address: "/ui/sandboxes", icon: "sandboxes" },
  { view: "projects", label: "Projects", address: "/ui/projects", icon: "projects" },
  { view: "leases", label: "Leases", address: "/ui/leases", icon: "leases", isRare: true },
  { view: "metrics", label: "Metrics", address: "/ui/metrics", icon: "metrics", isRare: true },
  { view: "settings", label: "Settings", address: "/ui/settings", icon: "settings" },
];

export function App() {
  const [signedOut, setSignedOut] = useState(false);
  const route = useRoute();
  const { theme, density } = usePreferences();
  useEffect(() => onSignedOut(() => setSignedOut(true)), []);
  useEffect(() => {
    const { classList } = document.documentElement;
    classList.toggle("light", theme === "light");
    classList.toggle("dark", theme === "dark");
    classList.toggle("dense", density === "dense");
  }, [theme, density]);
  // A share link works without signing in.
  if (route.view === "shared") return <SharedView terminal={route.terminal} />;
  return signedOut ? <SignIn /> : <Frame route={route} />;
}

function SignIn() {
  return (
    <main class="sign-in" id="main">
      <img src="/icon.svg" alt="" width="48" height="48" />
      <h1>Stead</h1>
      <p>
        This browser is not signed in. Run this command on the server's machine and open the link it prints:
      </p>
      <CommandLine text="stead login" />
      <p class="quiet-text">
        Or create a sign-in link in the settings of a browser that is signed in. A link works once. It sets a
        cookie that scripts cannot read.
      </p>
      <a class="button main" href="/">
        Continue
      </a>
    </main>
  );
}

function Frame({ route }: { route: Route }) {
  const threads = useThreads();
  const projects = useProjects();
  const [palette, setPalette] = useState(false);
  const [shortcuts, setShortcuts] = useState(false);
  const hasProjects = !isProblem(projects.error, 404);
  const sections = SECTIONS.filter((section) => section.view !== "projects" || hasProjects);

  const names = useSandboxNames();
  const handoffs = useOpenHandoffs();
  const overview = overviewOf(threads.value ?? [], handoffs.value ?? []);
  const shown = route.view === "thread" ? route.thread : null;
  usePageTitle(
    shown,
    threads.value?.find((one) => one.thread_id === shown),
    overview,
    names,
  );
  useAttention(route, threads.value, handoffs.value);
  // A layout effect, because the keys must work as soon as the page can be seen.
  useLayoutEffect(() => {
    const keys = (event: KeyboardEvent): void => {
      const control = (event.ctrlKey || event.metaKey) && !event.altKey;
      if (control && !event.shiftKey && event.key.toLowerCase() === "k") {
        event.preventDefault();
        event.stopPropagation();
        setPalette((open) => !open);
      } else if (event.ctrlKey && event.shiftKey && event.key === "Escape") {
        event.preventDefault();
        document.getElementById("main")?.focus();
      } else if (asksForShortcuts(event, placeOf(event.target))) {
        event.preventDefault();
        event.stopPropagation();
        setShortcuts((open) => !open);
      }
    };
    // In the capture phase, before a terminal handles the key.
    document.addEventListener("keydown", keys, { capture: true });
    return () => document.removeEventListener("keydown", keys, { capture: true });
  }, []);

  return (
    <ThreadNamesContext.Provider value={names}>
      <div class="frame">
        <a class="skip" href="#main">
          Skip to content
        </a>
        <nav class="side" aria-label="Main">
          <a class="brand" href="/ui/now">
            <img src="/icon.svg" alt="" width="20" height="20" />
            <span>Stead</span>
          </a>
          <ul class="sections">
            {sections.map((section) => (
              <li key={section.view} class={section.isRare && "wide-only"}>
                <a href={section.address} aria-current={section.view === route.view ? "page" : undefined}>
                  <Icon name={section.icon} />
                  <span>{section.label}</span>
                  {section.view === "now" && <Count count={overview.needs} />}
                  {section.view === "inbox" && <Count count={handoffs.value?.length ?? 0} />}
                </a>
              </li>
            ))}
          </ul>
          <button
            type="button"
            class="palette-button"
            title="Command palette (Ctrl-K)"
            onClick={() => setPalette(true)}
          >
            <Icon name="search" />
            <span class="wide-only">Search or run a command</span>
            <span class="phone-only">Search</span>
          </button>
          <Recent threads={threads.value ?? []} current={route.view === "thread" ? route.thread : null} />
          <button type="button" class="help-button wide-only" onClick={() => setShortcuts(true)}>
            <Icon name="keyboard" />
            Keyboard shortcuts
            <kbd>?</kbd>
          </button>
        </nav>
        <View route={route} threads={threads} handoffs={handoffs} />
        {palette && (
          <Palette
            actions={[
              ...actions(route, threads.value ?? [], names, sections),
              { title: "Keyboard shortcuts", run: () => setShortcuts(true) },
            ]}
            search={(text) => go(searchAddress(text))}
            close={() => setPalette(false)}
          />
        )}
        {shortcuts && <ShortcutDialog close={() => setShortcuts(false)} />}
        <DialogHost />
        <ToastHost />
      </div>
    </ThreadNamesContext.Provider>
  );
}

/** Whether a key is pressed in something that takes text. A terminal's input is a text area. */
const placeOf = (target: EventTarget | null): "field" | "page" =>
  target instanceof Element && target.closest("input:not([type=range]), textarea, select, [contenteditable]")
    ? "field"
    : "page";

/** How many requests wait for the person. */
function Count({ count }: { count: number }) {
  if (count === 0) return null;
  return (
    <span class="count">
      {count}
      <span class="hidden-text"> waiting for a person</span>
    </span>
  );
}

/** A thread that waits for input and has asked for it counts once. */
const overviewOf = (threads: Thread[], handoffs: Handoff[]): Overview => ({
  needs:
    handoffs.length +
    threads.filter((thread) => isWaiting(thread) && ofThread(handoffs, thread.thread_id).length === 0).length,
  running: threads.filter(isRunning).length,
});

/** Keeps the title and the icon of the page in step with what happens, in terminals that are not shown too. */
function usePageTitle(
  id: string | null,
  thread: Thread | undefined,
  { needs, running }: Overview,
  names: ThreadNames,
): void {
  const activity = mostUrgent([useActivity(), thread ? threadActivity(thread) : "idle"]);
  const name = id === null ? null : (names.get(id) ?? id);
  useEffect(() => {
    document.title = pageTitle(name, activity, { needs, running });
    const icon = pageIcon(name, activity, { needs, running });
    document.querySelector("link[rel=icon]")?.setAttribute("href", icon);
  }, [name, activity, needs, running]);
}

function Recent({ threads, current }: { threads: Thread[]; current: string | null }) {
  const recent = [...threads].sort((a, b) => b.updated_at.localeCompare(a.updated_at)).slice(0, 20);
  if (recent.length === 0) return null;
  return (
    <section class="recent" aria-label="Recent threads">
      <h2>Recent</h2>
      <ul>
        {recent.map((thread) => (
          <li key={thread.thread_id}>
            <a
              href={threadAddress(thread.thread_id)}
              aria-current={thread.thread_id === current ? "page" : undefined}
              title={thread.thread_id}
            >
              <span class={`dot ${threadState(thread).tone}`} aria-hidden="true" />
              <span class="recent-name">
                <ThreadName thread={thread.thread_id} />
              </span>
              <span class="hidden-text">, {threadState(thread).text}</span>
            </a>
          </li>
        ))}
      </ul>
    </section>
  );
}

interface ViewProps {
  route: Route;
  threads: Resource<Thread[]>;
  /** The open hand-offs. */
  handoffs: Resource<Handoff[]>;
}

function View({ route, threads, handoffs }: ViewProps) {
  switch (route.view) {
    case "now":
      return <NowView threads={threads} handoffs={handoffs.value ?? []} />;
    case "inbox":
      return <InboxView open={handoffs} />;
    case "search":
      return <SearchView text={route.text} />;
    case "threads":
      return <ThreadsView key={route.filter} threads={threads} filter={route.filter} />;
    case "thread":
      return (
        <ThreadView
          key={route.thread}
          thread={route.thread}
          tab={route.tab}
          query={route.query}
          handoffs={ofThread(handoffs.value ?? [], route.thread)}
        />
      );
    case "sandboxes":
      return <SandboxesView />;
    case "projects":
      return <ProjectsView />;
    case "leases":
      return <LeasesView />;
    case "metrics":
      return <MetricsView />;
    case "settings":
      return <SettingsView />;
    case "shared":
      // `App` renders it without this frame.
      return null;
    case "not_found":
      return (
        <main class="page" id="main" tabIndex={-1}>
          <Empty title="Page not found.">
            <p>
              The app has no page <code>{route.path}</code>.
            </p>
            <a class="button main" href="/ui/now">
              Go to Now
            </a>
          </Empty>
        </main>
      );
  }
}

function actions(route: Route, threads: Thread[], names: ThreadNames, sections: typeof SECTIONS): Action[] {
  const here: Action[] = [];
  if (route.view === "thread") {
    const { thread } = route;
    const at = path("api", "threads", thread);
    here.push(
      ...(["terminals", "timeline", "files", "versions", "replay"] as const).map((tab) => ({
        title: `Show ${tab}`,
        hint: thread,
        run: () => go(threadAddress(thread, tab)),
      })),
      { title: "New terminal", hint: thread, run: () => void newTerminal(thread) },
      {
        title: "Pause",
        hint: thread,
        run: () => void attempt("Couldn't pause the thread.", () => send("POST", `${at}/pause`), "Paused."),
      },
      {
        title: "Resume",
        hint: thread,
        run: () =>
          void attempt("Couldn't resume the thread.", () => send("POST", `${at}/resume`), "Resumed."),
      },
      {
        title: "Keep the session alive",
        hint: thread,
        run: () =>
          void attempt(
            "Couldn't reset the session timer.",
            () => send("POST", `${at}/session/touch`),
            "Session timer reset.",
          ),
      },
    );
  }
  return [
    ...here,
    ...threads.map((thread) => ({
      title: names.get(thread.thread_id) ?? thread.thread_id,
      hint: names.has(thread.thread_id) ? "sandbox" : "thread",
      run: () => go(threadAddress(thread.thread_id)),
    })),
    { title: "Search commands and output", run: () => go("/ui/search") },
    { title: "New thread", run: () => void newThread() },
    { title: "New sandbox", run: () => void newSandbox() },
    ...sections.map((section) => ({
      title: `Go to ${section.label.toLowerCase()}`,
      run: () => go(section.address),
    })),
    ...(["system", "light", "dark"] as const).map((theme) => ({
      title: `Theme: ${theme}`,
      run: () => prefer({ theme }),
    })),
  ];
}
