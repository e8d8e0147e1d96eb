import axe from "axe-core";
import type { Page } from "playwright-core";
import { beforeAll, describe, expect, test } from "vitest";
import { connected, person, showStatus, stage, stranger, threadPage } from "./harness.ts";

const scene = stage();
const { server } = scene;

/** A terminal whose program has ended. */
let ended = "";

beforeAll(async () => {
  await server.exec("looked-at", "printf 'def f():\\n    return \"x\"  # why\\n' > seen.py");
  await server.call("POST", "/api/sandboxes", { name: "sandbox-looked-at", timeout_s: 600 });
  await server.exec("looked-at", "export TOKEN=x; printf '\\033[31mred\\033[32mgreen\\033[0m\\n'; false");
  const { terminal_id } = await server.call<{ terminal_id: string }>(
    "GET",
    "/api/threads/looked-at/terminal",
  );
  for (const kind of ["input", "secret", "approval"]) {
    await server.call("POST", `/api/terminals/${terminal_id}/handoffs`, { kind, reason: "Why?" });
  }
  await server.exec("with-a-program", "true");
  const made = await server.call<{ terminal_id: string }>("POST", "/api/threads/with-a-program/terminals", {
    cmd: ["false"],
  });
  ended = made.terminal_id;
});

/** The rules of WCAG 2.2, levels A and AA. */
const TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];

/** Returns all violations of WCAG 2.2 AA that axe finds, of any impact. */
async function violations(page: Page): Promise<string[]> {
  await page.evaluate(axe.source);
  return page.evaluate(async (values) => {
    const found = await (window as unknown as { axe: typeof axe }).axe.run(document, {
      runOnly: { type: "tag", values },
      rules: { "target-size": { enabled: true } },
    });
    return found.violations.map(
      (one) => `${one.id}: ${one.nodes.map((node) => `${node.html} ${node.failureSummary}`).join("; ")}`,
    );
  }, TAGS);
}

/** The views, each with a function that waits until it is complete. */
const VIEWS: [view: string, complete: (page: Page) => Promise<unknown>][] = [
  ["now", (page) => page.locator(".handoff").nth(2).waitFor()],
  ["inbox", (page) => page.locator(".handoff").nth(2).waitFor()],
  [
    "threads",
    (page) =>
      page
        .getByRole("row", { name: /looked-at/ })
        .first()
        .waitFor(),
  ],
  ["search?q=green", (page) => page.locator(".result").first().waitFor()],
  ["threads?filter=matches-nothing", (page) => page.getByText("No threads match").waitFor()],
  [
    "threads/looked-at",
    async (page) => {
      await connected(page);
      await showStatus(page);
      await page.getByRole("heading", { name: "Ports" }).click();
      await page.getByText("stead ports looked-at").waitFor();
      await page.getByRole("heading", { name: "Egress" }).click();
      await page.getByText("keeps no log of its connections").waitFor();
    },
  ],
  ["threads/looked-at/timeline", (page) => page.locator(".entry.command summary").first().click()],
  [
    "threads/looked-at/files?path=/workspace/seen.py",
    (page) => page.locator(".cm-content span").first().waitFor(),
  ],
  ["threads/looked-at/versions?version=2", (page) => page.locator(".comparison").waitFor()],
  ["threads/looked-at/replay", (page) => page.locator(".mark-command").first().waitFor()],
  ["threads/no-thread-of-this-name", (page) => page.getByText("Thread not found.").waitFor()],
  ["sandboxes", (page) => page.getByRole("row", { name: /sandbox-looked-at/ }).waitFor()],
  ["projects", (page) => page.getByRole("heading", { level: 1 }).waitFor()],
  [
    "leases",
    (page) =>
      page
        .getByRole("row", { name: /looked-at/ })
        .first()
        .waitFor(),
  ],
  ["metrics", (page) => page.locator(".chart").first().waitFor()],
  ["settings", (page) => page.locator(".providers li").first().waitFor()],
  ["no-page", (page) => page.getByText("Page not found.").waitFor()],
];

describe.each(["light", "dark"] as const)("in %s, axe finds nothing", (colorScheme) => {
  test("in any view", { timeout: 150_000 }, async () => {
    const { context, page } = await person(scene.browser, server, { colorScheme });
    for (const [view, complete] of VIEWS) {
      await page.goto(`${server.url}/ui/${view}`);
      await complete(page);
      expect(await violations(page), view).toEqual([]);
    }
    await context.close();
  });

  test("on a phone", { timeout: 150_000 }, async () => {
    const { context, page } = await person(scene.browser, server, {
      colorScheme,
      viewport: { width: 390, height: 844 },
      hasTouch: true,
      isMobile: true,
    });
    for (const [view, complete] of VIEWS) {
      await page.goto(`${server.url}/ui/${view}`);
      await (view === "threads/looked-at" ? connected(page) : complete(page));
      expect(await violations(page), view).toEqual([]);
    }
    await context.close();
  });

  test("in dialogs and over terminals", { timeout: 150_000 }, async () => {
    const { context, page } = await person(scene.browser, server, { colorScheme });
    await page.goto(`${server.url}/ui/sandboxes`);
    await page.getByRole("button", { name: "More actions for sandbox-looked-at" }).click();
    await page.getByRole("menuitem", { name: "Ports…" }).click();
    await page.getByRole("dialog", { name: "Ports of sandbox-looked-at" }).waitFor();
    expect(await violations(page), "the ports of a sandbox").toEqual([]);
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "New sandbox" }).click();
    const dialog = page.getByRole("dialog", { name: "New sandbox" });
    await dialog.getByLabel("Lifetime", { exact: true }).fill("soon");
    await dialog.getByRole("button", { name: "Create" }).click();
    await dialog.getByText("Must be a duration").waitFor();
    expect(await violations(page), "a new sandbox").toEqual([]);
    await page.goto(`${server.url}/ui/inbox`);
    await page.locator(".handoff").first().getByRole("button", { name: "Decline" }).click();
    await page.getByRole("dialog").waitFor();
    expect(await violations(page), "declining").toEqual([]);
    await page.goto(threadPage(server, "looked-at", "files"));
    const picker = page.getByLabel("Files to upload");
    await picker.setInputFiles({ name: "seen.py", mimeType: "text/plain", buffer: Buffer.from("x") });
    await page.getByRole("dialog").getByText("Replace the file?").waitFor();
    expect(await violations(page), "an upload").toEqual([]);
    await page.getByRole("button", { name: "Cancel", exact: true }).click();
    await page.goto(`${threadPage(server, "with-a-program")}?show=${ended}`);
    await page.locator(".link-state.exited").waitFor();
    expect(await violations(page), "a program that ended").toEqual([]);
    await page.goto(threadPage(server, "looked-at"));
    await connected(page);
    await page.keyboard.press("Control+Shift+F");
    await page.getByLabel("Search the scrollback").fill("red");
    await page.locator(".match-count", { hasText: "of" }).waitFor();
    expect(await violations(page), "a search").toEqual([]);
    await page.keyboard.press("Escape");
    await page.keyboard.press("Control+Shift+?");
    await page.getByRole("dialog", { name: "Keyboard shortcuts" }).waitFor();
    expect(await violations(page), "the shortcuts").toEqual([]);
    await page.keyboard.press("Escape");
    await page.keyboard.press("Control+k");
    await page.getByRole("dialog", { name: "Command palette" }).waitFor();
    expect(await violations(page), "the palette").toEqual([]);
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Share a read-only link" }).click();
    await page.getByRole("button", { name: "Create link" }).click();
    const link = await page.getByLabel(/Copy it now/).inputValue();
    expect(await violations(page), "the share dialog").toEqual([]);
    const guest = await stranger(scene.browser, server, { colorScheme });
    await guest.page.goto(link);
    await connected(guest.page);
    expect(await violations(guest.page), "a guest's page").toEqual([]);
    await guest.page.goto(`${server.url}/`);
    await guest.page.getByText("This browser is not signed in").waitFor();
    expect(await violations(guest.page), "the sign-in page").toEqual([]);
    await Promise.all([guest.context.close(), context.close()]);
  });
});
