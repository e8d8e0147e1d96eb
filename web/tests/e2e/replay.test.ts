import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { complaints, person, screenText, shows, stage, threadPage, until } from "./harness.ts";

const scene = stage();
const { server } = scene;

const positionOf = async (page: Page): Promise<number> =>
  Number(await page.locator(".player-time").getAttribute("data-position"));

const hides = (page: Page, pattern: RegExp): Promise<boolean> =>
  until(`a screen without ${pattern}`, async () => !pattern.test(await screenText(page)));

test("a replay marks its commands, jumps to them and skips idle time", async () => {
  // A short prompt, so that no command is wrapped.
  await server.thread("marked", { cwd: "/tmp" });
  await server.exec("marked", "echo first-$((1+0))");
  await server.exec("marked", "sleep 4; echo second-$((1+1))");
  await server.exec("marked", "echo third-$((1+2)); false");
  const { context, page } = await person(scene.browser, server);
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.goto(threadPage(server, "marked", "replay"));
  await shows(page, /^third-3$/m);
  const marks = page.locator(".mark-command");
  expect(await marks.count()).toBe(3);
  expect(await marks.last().getAttribute("class")).toContain("bad");
  const caption = page.locator(".player-command");
  await caption.getByText("echo third-$((1+2)); false").waitFor();
  await caption.getByText("exit 1").waitFor();

  // The list, the keys and the mark lead to a command. Each shows the screen before its output.
  const choice = page.getByLabel("Jump to a command");
  await choice.selectOption({ index: 2 });
  await hides(page, /^second-2$/m);
  await shows(page, /^first-1$/m);
  expect(await screenText(page)).toContain("echo second-");
  await caption.getByText("sleep 4; echo second-$((1+1))").waitFor();
  const second = await positionOf(page);
  await page.getByLabel("Position").focus();
  await page.keyboard.press("[");
  await until("an earlier position", async () => (await positionOf(page)) < second);
  await hides(page, /^first-1$/m);
  expect(await page.getByRole("button", { name: "Previous command" }).isDisabled()).toBe(true);
  await page.keyboard.press("]");
  await until("the second again", async () => (await positionOf(page)) === second);
  await page.getByRole("button", { name: "Next command" }).click();
  await shows(page, /^second-2$/m);
  await choice.selectOption({ index: 1 });
  await page.getByRole("button", { name: "Jump to echo third-$((1+2)); false" }).click();
  await hides(page, /^third-3$/m);
  await shows(page, /^second-2$/m);

  // The four seconds of sleep take two on the time bar, unless idle time is shown in full.
  const length = async (): Promise<number> => Number(await page.getByLabel("Position").getAttribute("max"));
  const skipped = await length();
  await page.getByLabel("Skip idle time").uncheck();
  await until("the whole length", async () => (await length()) > skipped + 1.5);
  expect(await length()).toBeGreaterThan(4);
  const kept = await positionOf(page);
  await page.reload();
  await shows(page, /^third-3$/m);
  expect(await page.getByLabel("Skip idle time").isChecked()).toBe(false);
  expect(kept).toBeLessThan(await positionOf(page));
  expect(complaints.get(page)).toEqual([]);
  await context.close();
});

test("a link opens a replay at its moment, also after the server was killed", async () => {
  await server.exec("linked", "echo before-$((1+0))");
  await server.exec("linked", "echo after-$((1+1))");
  const { context, page } = await person(scene.browser, server);
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.goto(threadPage(server, "linked", "replay"));
  await shows(page, /^after-2$/m);
  await page.getByLabel("Jump to a command").selectOption({ index: 2 });
  await until("the moment before", async () => !/^after-2$/m.test(await screenText(page)));
  await page.getByRole("button", { name: "Copy link" }).click();
  await page.getByText("Link to this moment copied.").waitFor();
  const link = await page.evaluate(() => navigator.clipboard.readText());
  const here = { screen: (await screenText(page)).trim(), position: await positionOf(page) };
  await server.kill();
  await server.start();
  await page.goto(link);
  await shows(page, /^before-1$/m);
  await until("the same screen", async () => (await screenText(page)).trim() === here.screen);
  expect(await positionOf(page)).toBe(here.position);
  await context.close();
});

test("a version links to its command, and a command to its version", async () => {
  await server.exec("causes", "one() { echo 1; }; two() { echo 2; }; three() { echo 3; }");
  await server.exec("causes", "two() { echo two; }");
  await server.exec("causes", "export LAST=yes");
  const { context, page } = await person(scene.browser, server);
  await page.goto(threadPage(server, "causes", "timeline"));
  const entry = page.locator(".entry.command", { hasText: "echo two" });
  await entry.locator("summary").click();
  await entry.getByRole("link", { name: /^State version/ }).click();
  const comparison = page.locator(".comparison");
  const diff = comparison.locator("details", { hasText: "functions" }).locator(".diff");
  await diff.getByText("echo two").waitFor();
  expect(await comparison.innerText()).not.toContain("LAST");

  // The whole text, including unchanged lines.
  const lines = async (): Promise<number> => diff.locator("span").count();
  const near = await lines();
  await comparison.getByLabel("Show unchanged lines").check();
  await until("more lines", async () => (await lines()) > near);
  expect(await diff.innerText()).toContain("echo 3");
  expect(await diff.innerText()).toContain("echo 1");

  const row = page.locator("table.versions tbody tr", { hasText: "two() { echo two; }" });
  await row.getByRole("link", { name: "two() { echo two; }" }).click();
  await page.waitForURL("**/replay?*");
  await page.locator(".player-command").getByText("two() { echo two; }").waitFor();
  await context.close();
});
