import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { connected, person, stage, threadPage, until } from "./harness.ts";

const scene = stage();
const { server } = scene;

/** Starts a command without waiting for its end. */
const start = (thread: string, command: string): Promise<unknown> =>
  server.call("POST", `/api/threads/${thread}/exec`, { command, yield_ms: 100 });

/** Runs a command and waits for its end within one request, like most agents. */
const run = (thread: string, command: string): Promise<unknown> =>
  server.call("POST", `/api/threads/${thread}/exec`, { command });

const icon = (page: Page): Promise<string | null> =>
  page.evaluate(() => document.querySelector("link[rel=icon]")!.getAttribute("href"));

test("a running command is shown with its elapsed time, and can be stopped", async () => {
  await server.thread("busy");
  const { context, page } = await person(scene.browser, server);
  await page.goto(threadPage(server, "busy"));
  await connected(page);
  expect(await page.title()).toBe("busy · Stead");
  const ran = run("busy", "echo working; sleep 600");
  const status = page.locator(".command-status");
  await status.getByText("running").waitFor();
  await status.getByText("echo working; sleep 600").waitFor();
  await until("two seconds of elapsed time", async () => /\b([2-9]|\d\d) s\b/.test(await status.innerText()));
  expect(await page.title()).toBe("▶ busy · Stead");
  expect(await icon(page)).toBe("/icon-running.svg");
  await page.locator(".thread-title").getByText("running").waitFor();

  const list = await context.newPage();
  await list.goto(`${server.url}/ui/threads`);
  const row = list.getByRole("row", { name: /busy/ });
  await row.getByText("running").waitFor();
  await row.getByRole("cell", { name: "now" }).waitFor();
  await until("the count in the title", async () => (await list.title()) === "Stead · 1 running");

  await status.getByRole("button", { name: "Stop" }).click();
  await until("the end of the command", async () => !(await status.innerText()).includes("running"));
  await status.getByRole("button", { name: "Stop" }).waitFor({ state: "detached" });
  expect(await ran).toMatchObject({ status: "cancelled" });
  await until("no running thread", async () => (await list.title()) === "Stead");
  await context.close();
});

test("the exit status of the last command stays on the screen", async () => {
  const { context, page } = await person(scene.browser, server);
  await server.exec("ended", "exit_with() { return $1; }; exit_with 3");
  await page.goto(threadPage(server, "ended"));
  await connected(page);
  const status = page.locator(".command-status");
  await status.getByText("exit 3").waitFor();
  await until("the title", async () => (await page.title()) === "✕ ended · Stead");
  expect(await icon(page)).toBe("/icon-failed.svg");
  await server.exec("ended", "true");
  await status.getByText("exit 0").waitFor();
  await until("the title", async () => (await page.title()) === "ended · Stead");
  await page.goto(`${server.url}/ui/threads`);
  await page.getByRole("row", { name: /ended/ }).getByText("idle").waitFor();
  await context.close();
});

test("a command that waits for input says so", async () => {
  const { context, page } = await person(scene.browser, server);
  await server.thread("asking");
  await page.goto(threadPage(server, "asking"));
  await connected(page);
  await start("asking", "read -r -p 'Deploy? ' answer </dev/tty");
  await page.locator(".command-status").getByText("waiting for input").waitFor();
  await page.locator(".prompt-line", { hasText: "Deploy?" }).waitFor();
  await until("the title", async () => (await page.title()) === "(1) ⌨ asking · Stead");
  expect(await icon(page)).toBe("/icon-waiting.svg");
  await page.locator(".terminal .xterm-helper-textarea").focus();
  await page.keyboard.type("yes\n");
  await page.locator(".command-status").getByText("exit 0").waitFor();
  await until("the title", async () => (await page.title()) === "asking · Stead");
  await context.close();
});

const group = (page: Page, name: string) => page.getByRole("region", { name: new RegExp(`^${name}`) });

test("the home view groups threads by their activity, and updates itself", async () => {
  await server.exec("calm", "true");
  await server.exec("broken", "cd /nowhere");
  await server.exec("resting", "true");
  await server.call("POST", "/api/threads/resting/pause");
  const { context, page } = await person(scene.browser, server);
  await page.goto(`${server.url}/`);
  await page.getByRole("heading", { name: "Now" }).waitFor();
  await group(page, "Idle").getByRole("link", { name: "calm" }).waitFor();
  await group(page, "Failed").locator("[data-thread=broken]").getByText("exit 1").waitFor();
  await group(page, "Paused").getByRole("link", { name: "resting" }).waitFor();

  await start("calm", "for i in 1 2 3; do echo step-$i; sleep 0.1; done; sleep 600");
  const row = group(page, "Running").locator("[data-thread=calm]");
  await row.getByText("for i in 1 2 3").waitFor();
  await row.locator(".now-line", { hasText: "step-3" }).waitFor();
  await until("two seconds", async () => /\b([2-9]|\d\d) s\b/.test(await row.innerText()));
  await until("the title", async () => (await page.title()) === "Stead · 1 running");
  expect(await icon(page)).toBe("/icon-running.svg");

  await start("broken", "read -r -p 'Which branch? ' branch </dev/tty");
  const asking = group(page, "Waiting for a person").locator("[data-thread=broken]");
  await asking.locator(".now-line", { hasText: "Which branch?" }).waitFor();
  await page.locator(".toast", { hasText: "broken: A command waits for input." }).waitFor();
  await until("the title", async () => (await page.title()) === "(1) Stead · 2 running");
  expect(await icon(page)).toBe("/icon-waiting.svg");
  await page.getByRole("link", { name: /^Now 1/ }).waitFor();

  await row.getByRole("button", { name: "Stop calm" }).click();
  await group(page, "Failed").locator("[data-thread=calm]").getByText("cancelled").waitFor();
  await asking.getByRole("link", { name: "Open terminal" }).click();
  await page.waitForURL(/\/ui\/threads\/broken\?show=term_/);
  await connected(page);
  await page.keyboard.type("main\n");
  await page.locator(".command-status").getByText("exit 0").waitFor();
  await page.goto(`${server.url}/`);
  await group(page, "Idle").getByRole("link", { name: "broken" }).waitFor();
  await context.close();
});

test("a command in a second terminal counts like one in the first", async () => {
  await server.exec("doubled", "true");
  const second = await server.call<{ terminal_id: string }>("POST", "/api/threads/doubled/terminals", {});
  const { context, page } = await person(scene.browser, server);
  const ran = server.call("POST", `/api/terminals/${second.terminal_id}/exec`, {
    command: "echo from-the-second; read -r -p 'Which tag? ' tag </dev/tty; sleep 600",
  });
  await page.goto(`${server.url}/`);
  const asking = group(page, "Waiting for a person").locator("[data-thread=doubled]");
  await asking.locator(".now-line", { hasText: "Which tag?" }).waitFor();
  expect(await page.title()).toMatch(/^\(\d+\) Stead · \d+ running$/);
  // The page of the thread counts it, too, while it shows the first terminal.
  await page.goto(threadPage(server, "doubled"));
  await connected(page);
  await until("the title", async () => (await page.title()).includes("⌨ doubled"));
  await page.locator(".thread-title").getByText("waiting for input").waitFor();

  await page.goto(`${server.url}/`);
  await asking.getByRole("link", { name: "Open terminal" }).click();
  await page.waitForURL(`**/ui/threads/doubled?show=${second.terminal_id}`);
  await connected(page);
  await page.locator(".command-status").getByText("waiting for input").waitFor();
  await page.locator(".terminal .xterm-helper-textarea").focus();
  await page.keyboard.type("v1\n");
  await page.goto(`${server.url}/`);
  const running = group(page, "Running").locator("[data-thread=doubled]");
  await running.getByText("echo from-the-second").waitFor();
  await running.getByRole("button", { name: "Stop doubled" }).click();
  await group(page, "Failed").locator("[data-thread=doubled]").getByText("cancelled").waitFor();
  expect(await ran).toMatchObject({ status: "cancelled" });
  await context.close();
});

test("a person who allowed notifications gets one while the page is hidden", async () => {
  await server.thread("hidden");
  const { context, page } = await person(scene.browser, server);
  await context.grantPermissions(["notifications"]);
  await page.addInitScript(() => {
    const shown: string[] = [];
    Object.assign(window, { shown });
    window.Notification = class {
      static permission = "granted";
      constructor(title: string, options?: NotificationOptions) {
        shown.push(`${title}: ${options?.body}`);
      }
    } as unknown as typeof Notification;
    Object.defineProperty(document, "visibilityState", { get: () => "hidden" });
  });
  // The command already waits when the page subscribes to events.
  let release = (): void => {};
  const waits = new Promise<void>((resolve) => {
    release = resolve;
  });
  await page.route("**/api/events", async (route) => {
    await waits;
    await route.fallback();
  });
  await page.goto(`${server.url}/ui/projects`);
  await page.getByRole("heading", { name: "Projects" }).waitFor();
  await page.locator(".recent").getByText("hidden").waitFor();
  await start("hidden", "read -r line </dev/tty");
  await until("a command that waits", async () => {
    const thread = await server.call("GET", "/api/threads/hidden");
    return (thread as { last_command?: { waiting_for_input: boolean } }).last_command?.waiting_for_input;
  });
  release();
  await until("the notification", async () =>
    (await page.evaluate(() => (window as unknown as { shown: string[] }).shown)).includes(
      "hidden: A command waits for input.",
    ),
  );
  await context.close();
});

test("a phone shows a running command, and can stop it", async () => {
  await server.thread("in-pocket");
  await start("in-pocket", "echo a-line-of-output; sleep 600");
  const { context, page } = await person(scene.browser, server, {
    viewport: { width: 390, height: 844 },
    hasTouch: true,
    isMobile: true,
  });
  await page.goto(`${server.url}/`);
  const row = group(page, "Running").locator("[data-thread=in-pocket]");
  await row.locator(".now-line", { hasText: "a-line-of-output" }).waitFor();
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
  await row.getByRole("button", { name: "Stop in-pocket" }).tap();
  await group(page, "Failed").locator("[data-thread=in-pocket]").getByText("cancelled").waitFor();
  await context.close();
});

test("the timeline beside the terminal scrolls to new entries, and a signal reaches the command", async () => {
  await server.exec("followed", "echo one");
  const { context, page } = await person(scene.browser, server);
  await page.goto(threadPage(server, "followed"));
  await connected(page);
  const beside = page.getByRole("region", { name: "Timeline" });
  await beside.locator(".entry", { hasText: "echo one" }).waitFor();
  for (let nth = 0; nth < 20; nth += 1) await server.exec("followed", `echo number-${nth}`);
  const last = beside.locator(".entry", { hasText: "echo number-19" });
  await last.waitFor();
  const seen = async (): Promise<boolean> => {
    const [entry, box] = [await last.boundingBox(), await beside.boundingBox()];
    return entry !== null && box !== null && entry.y >= box.y && entry.y < box.y + box.height;
  };
  await until("the last entry in view", seen);
  // It does not scroll while the person reads earlier entries.
  await beside.evaluate((box) => box.scrollTo(0, 0));
  await page.getByRole("button", { name: "Jump to latest" }).waitFor();
  const ran = run("followed", "echo before; sleep 600");
  await until("a running command", async () => {
    const text = await beside.innerText();
    if (/\brunning\b/.test(text)) return true;
    throw new Error(text);
  });
  expect(await seen()).toBe(false);
  await page.getByRole("button", { name: "Jump to latest" }).click();
  await beside
    .locator(".entry.busy")
    .getByText(/\b\d+ s\b/)
    .waitFor();
  await page.getByRole("button", { name: "Send signal" }).click();
  await page.getByRole("menuitem", { name: "SIGKILL" }).waitFor();
  await page.getByRole("menuitem", { name: "SIGTERM" }).click();
  await page.locator(".toast", { hasText: "Sent SIGTERM." }).waitFor();
  await ran;
  await until("the end of the command", async () => (await beside.locator(".entry.busy").count()) === 0);
  await context.close();
});
