import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { connected, person, stage, threadPage, until } from "./harness.ts";

const scene = stage();
const { server } = scene;

/** Starts a command that outlives the request. */
const start = (thread: string, command: string): Promise<unknown> =>
  server.call("POST", `/api/threads/${thread}/exec`, { command, yield_ms: 100 });

const icon = (page: Page): Promise<string | null> =>
  page.evaluate(() => document.querySelector("link[rel=icon]")!.getAttribute("href"));

test("a running command is shown with its elapsed time, and can be stopped", async () => {
  await server.thread("busy");
  const { context, page } = await person(scene.browser, server);
  await page.goto(threadPage(server, "busy"));
  await connected(page);
  expect(await page.title()).toBe("busy · Stead");
  await start("busy", "echo working; sleep 600");
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
  await start("asking", "cat </dev/tty");
  await page.locator(".command-status").getByText("waiting for input").waitFor();
  await until("the title", async () => (await page.title()) === "⌨ asking · Stead");
  expect(await icon(page)).toBe("/icon-waiting.svg");
  await context.close();
});
