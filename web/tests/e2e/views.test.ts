import { readdirSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";
import {
  complaints,
  connected,
  person,
  screenText,
  showStatus,
  shows,
  stage,
  threadPage,
  type,
  until,
} from "./harness.ts";

const scene = stage();
const { server } = scene;

const panel = (page: Page): Promise<string> => page.locator(".panel").innerText();
const panelSays = (page: Page, what: RegExp): Promise<unknown> =>
  until(`${what} in the panel`, async () => {
    const text = await panel(page);
    if (what.test(text)) return true;
    throw new Error(text);
  });

describe("the status panel follows", () => {
  test("pauses and resumes, by the page and by other clients", async () => {
    const { context, page } = await person(scene.browser, server);
    await server.thread("pausing");
    await page.goto(threadPage(server, "pausing"));
    await connected(page);
    await showStatus(page);
    await panelSays(page, /Instance\s+●?\s*running/);
    await page.getByRole("button", { name: "Pause", exact: true }).click();
    await page.getByText("Paused. The next command resumes it").waitFor();
    await panelSays(page, /Instance\s+▲?\s*paused/);
    await server.call("POST", "/api/threads/pausing/resume");
    await panelSays(page, /Instance\s+●?\s*running/);
    await connected(page);
    await type(page, "echo awake");
    await shows(page, /^awake$/m);
    // Opening the page of a paused instance does not resume it.
    await server.call("POST", "/api/threads/pausing/pause");
    await page.reload();
    await page.getByText("Paused. The next command resumes it").waitFor();
    await panelSays(page, /Instance\s+▲?\s*paused/);
    await page.locator("section.terminal").getByRole("button", { name: "Resume" }).click();
    await connected(page);
    await shows(page, /^awake$/m);
    await context.close();
  });

  test("the end of a session", async () => {
    const { context, page } = await person(scene.browser, server);
    await server.thread("ending", { policy: { idle_timeout_s: 3, max_duration_s: 60, on_expiry: "keep" } });
    await server.exec("ending", "true");
    await page.goto(threadPage(server, "ending", "timeline"));
    await panelSays(page, /Session[\s\S]*(active|idle)/);
    await panelSays(page, /Session[\s\S]*expired/);
    await server.exec("ending", "true");
    await panelSays(page, /Session[\s\S]*(active|idle)/);
    await context.close();
  });

  test("the replacement of a dead instance, with its shell's state", async () => {
    const { context, page } = await person(scene.browser, server);
    await server.exec("dying", "cd /usr; KEPT=yes");
    await page.goto(threadPage(server, "dying"));
    await connected(page);
    await showStatus(page);
    await panelSays(page, /Directory\s+\/usr/);
    const lease = await server.call<{ instance: { instance_id: string } }>("GET", "/api/threads/dying/lease");
    process.kill(hostOf(lease.instance.instance_id), "SIGKILL");
    // A command that is sent before the death is noticed is refused or lost and never run twice, so the client repeats it.
    const again = await until("a finished command", async () => {
      const done = await server.exec("dying", "echo $KEPT in $PWD");
      if (done.status === "finished") return done;
      throw new Error(JSON.stringify(done));
    });
    expect(again.stdout).toBe("yes in /usr\n");
    await panelSays(page, /Recreated\s+1 time\b/);
    await connected(page);
    await shows(page, /^yes in \/usr$/m);
    await context.close();
  });
});

/** Returns the pid of an instance's host. */
function hostOf(instance: string): number {
  const folder = join(server.home, "run", instance);
  const file = readdirSync(folder).find((name) => name.endsWith("pid"));
  if (file) return Number(readFileSync(join(folder, file), "utf8").trim());
  return (JSON.parse(readFileSync(join(folder, "host.json"), "utf8")) as { pid: number }).pid;
}

test("the recording shows the screen of an earlier moment", async () => {
  const { context, page } = await person(scene.browser, server);
  await server.exec("replayed", "echo first-thing");
  await server.exec("replayed", "echo second-thing");
  await server.exec("replayed", "sleep 2; clear; echo third-thing");
  await page.goto(threadPage(server, "replayed", "timeline"));
  const entry = page.locator(".entry.command", { hasText: "echo second-thing" });
  await entry.locator("summary").click();
  await entry.getByText("Show the screen at this point").click();
  await shows(page, "second-thing");
  expect(await screenText(page)).not.toContain("third-thing");
  await page.getByLabel("Speed").selectOption("50");
  await page.getByRole("button", { name: "Play" }).click();
  await shows(page, "third-thing");
  await page.getByLabel("Position").fill("0");
  await page.getByLabel("Speed").selectOption("0.5");
  const player = page.locator(".player");
  const position = (): Promise<string | null> => player.locator(".player-time").getAttribute("data-position");
  await player.getByRole("button", { name: "Play" }).click();
  await until("the second command is played", async () => Number(await position()) > 1);
  await player.getByRole("button", { name: "Pause" }).click();
  await player.getByRole("button", { name: "Play" }).waitFor();
  const stopped = await position();
  await page.evaluate(async () => {
    for (let frame = 0; frame < 60; frame += 1) await new Promise(requestAnimationFrame);
  });
  expect(await position()).toBe(stopped);
  await page.getByLabel("Position").fill("0");
  await until("an empty screen", async () => (await screenText(page)).trim() === "");
  await context.close();
});

test("versions are compared, restored and forked", async () => {
  const { context, page } = await person(scene.browser, server);
  await server.exec("versioned", "export COLOUR=red; alias hi='echo hi'");
  await server.exec("versioned", "export COLOUR=blue; cd /tmp");
  await page.goto(threadPage(server, "versioned", "versions"));
  const comparison = page.locator(".comparison");
  await comparison.waitFor();
  await until("the difference", async () =>
    /− COLOUR\s*red[\s\S]*\+ COLOUR\s*blue/.test(await comparison.innerText()),
  );
  await page.getByRole("cell", { name: "export COLOUR=blue; cd /tmp" }).waitFor();
  await page.locator("table.versions tbody tr").nth(1).getByRole("button", { name: "Roll back" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Roll back" }).click();
  await page.getByText(/Rolled back to version/).waitFor();
  expect((await server.exec("versioned", "echo $COLOUR")).stdout).toBe("red\n");
  await page.locator("table.versions tbody tr").first().getByRole("button", { name: "Fork" }).click();
  await until("a second terminal", async () => (await page.locator(".terminal-tab").count()) === 2);
  await context.close();
});

test("a comparison of versions shows every line, one below the other", async () => {
  const { context, page } = await person(scene.browser, server);
  await server.exec("lines", "greet() { echo one; }");
  await server.exec("lines", "greet() { echo one; echo two; echo three; }; alias hello=greet");
  await page.goto(threadPage(server, "lines", "versions"));
  const diff = page.locator(".comparison details", { hasText: "functions" }).locator(".diff");
  await diff.getByText("echo three").waitFor();
  const box = (await diff.boundingBox())!;
  const lines = await diff.locator("span").all();
  expect(lines.length).toBeGreaterThan(3);
  let bottom = box.y;
  for (const line of lines) {
    const { x, y, height } = (await line.boundingBox())!;
    expect(x).toBe(box.x);
    expect(y).toBeGreaterThanOrEqual(bottom);
    bottom = y + height;
  }
  await context.close();
});

test("projects are created, pinned, extended and deleted, if the server supports them", async () => {
  const { context, page } = await person(scene.browser, server);
  const has = await server.call("GET", "/api/projects").then(
    () => true,
    (error: Error) => {
      if (!error.message.includes(" 404 ")) throw error;
      return false;
    },
  );
  await page.getByRole("heading", { name: "Threads" }).waitFor();
  const link = page.getByRole("link", { name: "Projects" });
  if (!has) {
    await until("no link to projects", async () => (await link.count()) === 0);
    return context.close();
  }
  await link.click();
  await page.getByRole("button", { name: "New project" }).click();
  await page.getByLabel("Prefix").fill("weather");
  await page.getByLabel("Description").fill("<b>Sun</b> and rain");
  await page.getByLabel("Tags").fill("demo, python");
  await page.getByRole("button", { name: "Create" }).click();
  const card = page.locator(".project-card", { hasText: "<b>Sun</b> and rain" });
  await page.locator(".toast", { hasText: /Created weather-.* It is deleted on .*20\d\d unless/ }).waitFor();
  await card.getByText(/Deletes on .*20\d\d \(in \d+ d\) unless it is used/).waitFor();
  await card.getByText("python").waitFor();
  await card.getByRole("button", { name: "Pin" }).click();
  await card.getByText("pinned").waitFor();
  await card.getByRole("button", { name: "Unpin" }).click();
  await card.getByRole("button", { name: /^More actions for weather-/ }).click();
  await page.getByRole("menuitem", { name: "Keep for 30 more days" }).click();
  await card.getByText(/\(in (5\d|60) d\)/).waitFor();
  const id = await card.getByRole("heading").innerText();
  await card.getByRole("button", { name: /^More actions for weather-/ }).click();
  await page.getByRole("menuitem", { name: "Delete project…" }).click();
  await page.getByRole("dialog").getByRole("textbox").fill(id);
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await card.waitFor({ state: "detached" });
  await context.close();
});

test("titles, names, messages and output never become markup", async () => {
  const { context, page } = await person(scene.browser, server);
  const evil = "<img src=x onerror=window.broken=1>";
  const id = "<img>broken";
  await server.thread(id, { labels: { evil } });
  await server.call("POST", `/api/threads/${encodeURIComponent(id)}/messages`, {
    role: "user",
    content: `${evil}<script>window.broken=1</script>`,
  });
  await server.exec(
    id,
    [
      `printf '\\033]0;${evil}\\007%s\\n' '${evil}'`,
      "echo '\\033]8;;javascript:window.broken=1\\033\\\\link\\033]8;;\\033\\\\'",
      "cd '/tmp'",
    ].join("; "),
  );
  for (const at of [
    `${server.url}/ui/threads`,
    threadPage(server, id),
    threadPage(server, id, "timeline"),
    threadPage(server, id, "versions"),
    `${server.url}/ui/leases`,
  ]) {
    await page.goto(at);
    await page.getByText("<img").first().waitFor();
    expect(await page.locator("img[src=x], img:not([src])").count(), at).toBe(0);
  }
  await page.goto(threadPage(server, id, "timeline"));
  await page.locator(".entry.command summary").first().click();
  await page.locator(".entry.command .output").first().waitFor();
  expect(await page.evaluate(() => "broken" in window)).toBe(false);
  expect(complaints.get(page)).toEqual([]);
  await context.close();
});

test("a page of another origin can neither open a socket nor read", async () => {
  const { context, page } = await person(scene.browser, server);
  await server.thread("private");
  const { terminal_id } = await server.call<{ terminal_id: string }>("GET", "/api/threads/private/terminal");
  const other = createServer((_request, response) =>
    response.setHeader("content-type", "text/html").end("<p>other"),
  );
  await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", resolve));
  // The same host is the same site: the cookie is sent, and only the origin differs.
  await page.goto(`http://127.0.0.1:${(other.address() as AddressInfo).port}/`);
  const seen = await page.evaluate(
    async ([url, terminal]) => {
      const socket = await new Promise<string>((resolve) => {
        const opened = new WebSocket(`${url!.replace("http", "ws")}/api/terminals/${terminal}/ws`);
        opened.onopen = () => resolve("open");
        opened.onerror = () => resolve("refused");
      });
      const read = await fetch(`${url}/api/threads`, { credentials: "include" }).then(
        () => "read",
        () => "refused",
      );
      return { socket, read };
    },
    [server.url, terminal_id],
  );
  expect(seen).toEqual({ socket: "refused", read: "refused" });
  other.close();
  await context.close();
});

test("every control is reached with the keyboard", async () => {
  const { context, page } = await person(scene.browser, server);
  await server.thread("keys");
  await page.goto(threadPage(server, "keys"));
  await connected(page);
  await page.keyboard.press("Control+k");
  await page.keyboard.type("go to metr");
  await page.keyboard.press("Enter");
  await page.waitForURL("**/ui/metrics");
  await page.keyboard.press("Control+k");
  await page.keyboard.type("keys");
  await page.keyboard.press("Enter");
  await page.waitForURL("**/ui/threads/keys");
  await connected(page);
  await page.getByRole("button", { name: "More thread actions" }).focus();
  await page.keyboard.press("Enter");
  await page.keyboard.press("End");
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog");
  await dialog.getByText("Destroy this thread?").waitFor();
  expect(await dialog.getByRole("button", { name: "Destroy" }).isDisabled()).toBe(true);
  await dialog.getByRole("textbox").fill("keys");
  await page.keyboard.press("Enter");
  await page.waitForURL("**/ui/threads");
  const { items } = await server.call<{ items: { thread_id: string }[] }>("GET", "/api/threads?limit=1000");
  expect(items.map((thread) => thread.thread_id)).not.toContain("keys");
  await context.close();
});

test("a phone shows every view without horizontal scrolling", async () => {
  const { context, page } = await person(scene.browser, server, {
    viewport: { width: 390, height: 844 },
    hasTouch: true,
    isMobile: true,
  });
  await server.exec("pocket", "echo small");
  for (const at of ["", "timeline", "files", "versions", "replay"]) {
    await page.goto(threadPage(server, "pocket", at));
    await page.getByRole("heading", { name: "pocket" }).waitFor();
    expect(await page.evaluate(() => document.documentElement.scrollWidth), at).toBeLessThanOrEqual(390);
  }
  for (const at of ["now", "inbox", "threads", "sandboxes", "projects", "leases", "metrics", "settings"]) {
    await page.goto(`${server.url}/ui/${at}`);
    await page.getByRole("heading", { level: 1 }).waitFor();
    expect(await page.evaluate(() => document.documentElement.scrollWidth), at).toBeLessThanOrEqual(390);
  }
  await page.goto(threadPage(server, "pocket"));
  await connected(page);
  await shows(page, /^small$/m);
  await page.getByRole("button", { name: "Side panel" }).click();
  await showStatus(page);
  await panelSays(page, /Session[\s\S]*Lease/);
  const sections = page.getByRole("navigation", { name: "Main" });
  await sections.getByRole("link", { name: "Settings" }).click();
  await page.getByRole("heading", { name: "Settings", level: 1 }).waitFor();
  // The search finds the sections for which a phone's navigation has no room.
  await sections.getByRole("button", { name: "Search" }).click();
  await page.getByRole("dialog", { name: "Command palette" }).waitFor();
  await page.keyboard.type("go to leases");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Leases" }).waitFor();
  await context.close();
});
