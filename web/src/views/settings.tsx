/** Preferences of this browser, share links, keyboard shortcuts, and the server. */

import { get, send } from "../api/client.ts";
import { useResource } from "../api/resource.ts";
import { DEFAULTS, prefer, usePreferences } from "../lib/preferences.ts";
import { attempt } from "../ui/dialogs.tsx";
import { NotificationPermission } from "../ui/notification-permission.tsx";
import { Button } from "../ui/parts.tsx";
import { ShareList, useShares } from "./share.tsx";

export function SettingsView() {
  const preferred = usePreferences();
  const about = useResource<{ info?: { title?: string; version?: string } }>(
    "about",
    () => get("/openapi.json"),
    () => false,
  );
  const shares = useShares(null);
  const signOut = (): Promise<unknown> =>
    attempt("Couldn't sign out.", async () => {
      await send("POST", "/api/logout");
      location.assign("/");
    });
  return (
    <main class="page narrow" id="main" tabIndex={-1}>
      <header class="page-head">
        <h1>Settings</h1>
      </header>
      <section class="group" aria-labelledby="preferences">
        <h2 id="preferences">This browser</h2>
        <label class="labelled">
          <span>Your name, shown to others while you have control</span>
          <input
            value={preferred.name}
            maxLength={40}
            onChange={(event) => prefer({ name: event.currentTarget.value })}
          />
        </label>
        <label class="labelled">
          <span>Theme</span>
          <select
            value={preferred.theme}
            onChange={(event) => prefer({ theme: event.currentTarget.value as typeof preferred.theme })}
          >
            <option value="system">System</option>
            <option value="light">Light</option>
            <option value="dark">Dark</option>
          </select>
        </label>
        <label class="labelled">
          <span>Terminal text size</span>
          <input
            type="number"
            min={8}
            max={32}
            value={preferred.fontSize}
            onChange={(event) => prefer({ fontSize: event.currentTarget.valueAsNumber })}
          />
        </label>
        <label class="labelled">
          <span>Lines of scrollback</span>
          <input
            type="number"
            min={0}
            max={100000}
            step={1000}
            value={preferred.scrollback}
            onChange={(event) => prefer({ scrollback: event.currentTarget.valueAsNumber })}
          />
        </label>
        <label class="check">
          <input
            type="checkbox"
            checked={preferred.screenReader}
            onChange={(event) => prefer({ screenReader: event.currentTarget.checked })}
          />
          <span>Screen reader mode in terminals</span>
        </label>
        <p class="quiet-text">Programs in a terminal cannot read or write this browser's clipboard.</p>
        <NotificationPermission />
        <Button onClick={() => prefer(DEFAULTS)}>Reset to defaults</Button>
      </section>
      <section class="group" aria-labelledby="links">
        <h2 id="links">Share links</h2>
        <p class="quiet-text">Each link shows one terminal, read-only. Create links in a terminal's menu.</p>
        <ShareList shares={shares} ownerOf={(share) => share.terminal_id} />
      </section>
      <section class="group" aria-labelledby="keys">
        <h2 id="keys">Keyboard shortcuts</h2>
        <dl class="fields">
          <dt>
            <kbd>Ctrl</kbd> <kbd>K</kbd>
          </dt>
          <dd>Open the command palette</dd>
          <dt>
            <kbd>Ctrl</kbd> <kbd>Shift</kbd> <kbd>F</kbd>
          </dt>
          <dd>Search in the terminal</dd>
          <dt>
            <kbd>Ctrl</kbd> <kbd>Shift</kbd> <kbd>C</kbd>
          </dt>
          <dd>Copy the terminal's selection</dd>
          <dt>
            <kbd>Ctrl</kbd> <kbd>Shift</kbd> <kbd>Esc</kbd>
          </dt>
          <dd>Move the focus out of the terminal</dd>
        </dl>
      </section>
      <section class="group" aria-labelledby="server">
        <h2 id="server">Server</h2>
        <p>
          {about.value?.info?.title ?? "Stead"} {about.value?.info?.version ?? ""} ·{" "}
          <a href="/docs" target="_blank" rel="noreferrer">
            API documentation
          </a>{" "}
          ·{" "}
          <a href="/openapi.json" target="_blank" rel="noreferrer">
            OpenAPI
          </a>
        </p>
        <Button onClick={signOut}>Sign out</Button>
      </section>
    </main>
  );
}
