import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import {
  complaints,
  connected,
  person,
  screenText,
  shows,
  stage,
  threadPage,
  type,
  until,
} from "./harness.ts";

const scene = stage();
const { server } = scene;

/** Opens the terminal of a thread as a person with these preferences. */
async function at(
  thread: string,
  preferences: object = {},
): Promise<{ page: Page; close: () => Promise<void> }> {
  // A short prompt, which fits into a narrow terminal.
  await server.thread(thread, { cwd: "/tmp" });
  const { context, page } = await person(scene.browser, server);
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.evaluate(
    (given) => localStorage.setItem("stead.preferences", given),
    JSON.stringify(preferences),
  );
  await page.goto(threadPage(server, thread));
  await connected(page);
  return {
    page,
    close: () => {
      expect(complaints.get(page)).toEqual([]);
      return context.close();
    },
  };
}

const clipboard = (page: Page): Promise<string> => page.evaluate(() => navigator.clipboard.readText());

test("a selection is copied when the person prefers it", async () => {
  const { page, close } = await at("selecting", { copyOnSelect: true });
  await type(page, "clear; echo copy-$((1+1))-me");
  await shows(page, /^copy-2-me$/m);
  const row = page.locator(".terminal .xterm-rows > div", { hasText: /^copy-2-me\s*$/ }).last();
  const box = (await row.boundingBox())!;
  await page.mouse.dblclick(box.x + 20, box.y + box.height / 2);
  await until("the word in the clipboard", async () => (await clipboard(page)) === "copy-2-me");
  await close();
});

test("a selection is not copied otherwise", async () => {
  const { page, close } = await at("leaving");
  await page.evaluate(() => navigator.clipboard.writeText("mine"));
  await type(page, "clear; echo keep-$((1+1))-me");
  await shows(page, /^keep-2-me$/m);
  const row = page.locator(".terminal .xterm-rows > div", { hasText: /^keep-2-me\s*$/ }).last();
  const box = (await row.boundingBox())!;
  await page.mouse.dblclick(box.x + 20, box.y + box.height / 2);
  await page.keyboard.press("Control+Shift+C");
  await page.getByText("Copied.").waitFor();
  expect(await clipboard(page)).toBe("keep-2-me");
  await close();
});

test("a paste of several lines is always confirmed when the person prefers it", async () => {
  const { page, close } = await at("guarded", { pasteGuard: "always" });
  await type(page, "echo shell-$((1+1))");
  await shows(page, /^shell-2\s*\n.*[#$]\s*$/m);
  await page.evaluate(() => navigator.clipboard.writeText("echo one\necho two"));
  await page.getByRole("button", { name: "Paste", exact: true }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("Paste this text?").waitFor();
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await page.evaluate(() => navigator.clipboard.writeText("echo only-one"));
  await page.getByRole("button", { name: "Paste", exact: true }).click();
  await shows(page, /echo only-one\s*$/m);
  expect(await screenText(page)).not.toContain("echo two");
  await close();
});

test("a search counts its matches, steps through them and can be case-sensitive", async () => {
  const { page, close } = await at("counting");
  await type(page, "clear; for i in 1 2 3; do echo Needle-$i; done; echo needle-4");
  await shows(page, /^needle-4$/m);
  await page.keyboard.press("Control+Shift+F");
  const field = page.getByLabel("Search the scrollback");
  const count = page.locator(".match-count");
  await field.fill("needle-");
  await until("four matches", async () => (await count.innerText()) === "4 of 4");
  await field.press("Enter");
  await until("the one before", async () => (await count.innerText()) === "3 of 4");
  await field.press("Shift+Enter");
  await until("the one after", async () => (await count.innerText()) === "4 of 4");
  await page.getByRole("button", { name: "Match case" }).click();
  await until("one match", async () => (await count.innerText()) === "1 of 1");
  await field.press("Escape");
  await field.waitFor({ state: "detached" });
  await type(page, "echo typed-$((1+1))");
  await shows(page, /^typed-2$/m);
  await close();
});

test("of terminals side by side one is the target of commands, and keys choose it", async () => {
  const { page, close } = await at("pair");
  await page.getByRole("button", { name: "New terminal" }).click();
  await until("two tabs", async () => (await page.locator(".terminal-tab").count()) === 2);
  await page.getByRole("button", { name: "Show main side by side" }).click();
  await connected(page, 0);
  await connected(page, 1);
  const target = page.locator(".exec-target");
  const focus = (nth: number): Promise<void> =>
    page.locator(".terminal .xterm-helper-textarea").nth(nth).focus();
  await focus(1);
  await until("main is the target", async () => (await target.innerText()) === "main");
  expect(await page.locator("section.terminal.selected").count()).toBe(1);
  await page.keyboard.press("Control+Shift+ArrowRight");
  await until("the other is the target", async () => (await target.innerText()) === "terminal 2");
  const box = page.getByLabel("Command to run in terminal 2");
  await box.fill("echo in-two-$((1+1))");
  await box.press("Enter");
  await shows(page, /^in-two-2$/m, 0);
  expect(await screenText(page, 1)).not.toContain("in-two-2");
  await close();
});

test("the end of a shell and of a program are explained", async () => {
  const { page, close } = await at("leaving-shell");
  await type(page, "exit 5");
  await shows(page, "the shell exited with code 5; a new shell continues from its state");
  await type(page, "echo still-$((1+1))");
  await shows(page, /^still-2$/m);

  const made = await server.call<{ terminal_id: string }>("POST", "/api/threads/leaving-shell/terminals", {
    cmd: ["sh", "-c", "echo done-here; exit 3"],
  });
  await page.goto(`${threadPage(server, "leaving-shell")}?show=${made.terminal_id}`);
  await shows(page, "done-here");
  const notice = page.locator(".link-state.exited");
  await notice.getByText("The program ended with exit code 3.").waitFor();
  await notice.getByRole("button", { name: "Run it again" }).click();
  await until("a third terminal", async () => (await page.locator(".terminal-tab").count()) === 3);
  await notice.getByText("The program ended with exit code 3.").waitFor();
  await notice.getByRole("button", { name: "Delete terminal" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await until("two terminals", async () => (await page.locator(".terminal-tab").count()) === 2);
  await close();
});
