/** Preferences of this browser; providers, sign-in links, share links and shortcuts; and the server. */

import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { get, list, send } from "../api/client.ts";
import { useResource } from "../api/resource.ts";
import type { Terminal } from "../api/types.ts";
import { DEFAULTS, prefer } from "../lib/preferences.ts";
import { attempt } from "../ui/dialogs.tsx";
import { Button, CommandLine } from "../ui/parts.tsx";
import { ShortcutList } from "../ui/shortcuts.tsx";
import { AppearanceFields, NotificationFields, PersonFields, TerminalFields } from "./preferences.tsx";
import { ProviderList } from "./providers.tsx";
import { ShareList, useShares } from "./share.tsx";
import { SignInLinks } from "./sign-in-links.tsx";
import "./settings.css";

const SECTIONS: { id: string; label: string }[] = [
  { id: "appearance", label: "Appearance" },
  { id: "terminals", label: "Terminals" },
  { id: "notifications", label: "Notifications" },
  { id: "providers", label: "Providers" },
  { id: "sign-in", label: "Sign-in links" },
  { id: "shares", label: "Share links" },
  { id: "shortcuts", label: "Keyboard shortcuts" },
  { id: "server", label: "Server" },
];

export function SettingsView() {
  useEffect(() => {
    const wanted = location.hash.slice(1);
    if (wanted !== "") document.getElementById(wanted)?.scrollIntoView();
  }, []);
  return (
    <main class="page settings" id="main" tabIndex={-1}>
      <header class="page-head">
        <h1>Settings</h1>
        <Button onClick={() => prefer(DEFAULTS)}>Reset to defaults</Button>
      </header>
      <nav class="settings-index" aria-label="Settings">
        {SECTIONS.map(({ id, label }) => (
          <a key={id} href={`#${id}`}>
            {label}
          </a>
        ))}
      </nav>
      <Group id="appearance" about="How the app looks in this browser.">
        <AppearanceFields />
        <PersonFields />
      </Group>
      <Group
        id="terminals"
        about="How terminals look and behave in this browser. Programs in a terminal cannot read or write its clipboard."
      >
        <TerminalFields />
      </Group>
      <Group id="notifications" about="When the app calls you, on the page and, if you allow it, outside it.">
        <NotificationFields />
      </Group>
      <Group id="providers" about="Where threads and sandboxes can run.">
        <ProviderList />
      </Group>
      <Group id="sign-in" about="Signs another browser or a phone in to this server, with all your rights.">
        <SignInLinks />
      </Group>
      <Group
        id="shares"
        about="Each link shows one terminal, read-only, until it expires or is revoked. Create links in a terminal's menu."
      >
        <Shares />
      </Group>
      <Group id="shortcuts" about="Press ? anywhere outside a text field to see them.">
        <ShortcutList level="h3" />
      </Group>
      <Group id="server" about="The server that this browser is signed in to.">
        <Server />
      </Group>
    </main>
  );
}

function Group({ id, about, children }: { id: string; about: string; children: ComponentChildren }) {
  const label = SECTIONS.find((section) => section.id === id)?.label ?? id;
  return (
    <section class="settings-group" id={id} aria-labelledby={`${id}-title`}>
      <div class="settings-about">
        <h2 id={`${id}-title`}>{label}</h2>
        <p class="quiet-text">{about}</p>
      </div>
      <div class="settings-fields">{children}</div>
    </section>
  );
}

function Shares() {
  const shares = useShares(null);
  const terminals = useResource<Terminal[]>(
    "terminals of all threads",
    () => list<Terminal>("/api/terminals?limit=1000", 2000),
    () => false,
  );
  const threadOf = new Map(terminals.value?.map((one) => [one.terminal_id, one.thread_id]));
  return (
    <>
      <ShareList shares={shares} ownerOf={(share) => threadOf.get(share.terminal_id) ?? share.terminal_id} />
      {shares.value?.length === 0 && <CommandLine text="stead share create THREAD" />}
    </>
  );
}

function Server() {
  const about = useResource<{ info?: { title?: string; version?: string } }>(
    "about",
    () => get("/openapi.json"),
    () => false,
  );
  const signOut = (): Promise<unknown> =>
    attempt("Couldn't sign out.", async () => {
      await send("POST", "/api/logout");
      location.assign("/");
    });
  return (
    <>
      <p>
        {about.value?.info?.title ?? "Stead"} {about.value?.info?.version ?? ""} ·{" "}
        <a href="/docs" target="_blank" rel="noreferrer">
          Documentation
        </a>{" "}
        ·{" "}
        <a href="/docs/api" target="_blank" rel="noreferrer">
          API
        </a>{" "}
        ·{" "}
        <a href="/openapi.json" target="_blank" rel="noreferrer">
          OpenAPI
        </a>{" "}
        · <a href="/ui/metrics">Metrics</a>
      </p>
      <Button onClick={signOut}>Sign out</Button>
    </>
  );
}
