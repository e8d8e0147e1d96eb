import { expect, test } from "vitest";
import { connected, person, showStatus, shows, stage, threadPage, type, until } from "./harness.ts";

const scene = stage();
const { server } = scene;

test("a dialog that fails keeps what was entered and shows the error at its field", async () => {
  const { context, page } = await person(scene.browser, server);
  await page.getByRole("button", { name: "New thread" }).first().click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("corrected");
  const directory = dialog.getByLabel("Working directory");
  await directory.fill("not/absolute");
  await dialog.getByRole("button", { name: "Create" }).click();
  await dialog.getByText("Must be an absolute path.").waitFor();
  await dialog.getByRole("alert").getByText("Couldn't create the thread.").waitFor();
  expect(await directory.getAttribute("aria-invalid")).toBe("true");
  expect(await dialog.innerText()).not.toContain("/cwd");
  expect(await directory.inputValue()).toBe("not/absolute");
  expect(await dialog.getByLabel("Name").inputValue()).toBe("corrected");
  await directory.fill("/tmp");
  await dialog.getByRole("button", { name: "Create" }).click();
  await page.waitForURL("**/ui/threads/corrected");
  await connected(page);
  await context.close();
});

test("the status panel and the command box follow the terminal in use", async () => {
  await server.exec("several", "cd /usr");
  const second = await server.call<{ terminal_id: string }>("POST", "/api/threads/several/terminals", {});
  await server.call("POST", `/api/terminals/${second.terminal_id}/exec`, { command: "cd /tmp" });
  const { context, page } = await person(scene.browser, server);
  const panel = page.locator(".panel");
  const directory = (wanted: string): Promise<unknown> =>
    until(`${wanted} in the panel`, async () =>
      new RegExp(`Directory\\s+${wanted}\\b`).test(await panel.innerText()),
    );
  await page.goto(threadPage(server, "several"));
  await connected(page);
  await showStatus(page);
  await directory("/usr");
  await page.getByRole("button", { name: "Show terminal 2 side by side" }).click();
  await connected(page, 1);
  await directory("/tmp");
  await page.getByLabel("Command to run in terminal 2").waitFor();
  await page.locator(".terminal .xterm-helper-textarea").first().focus();
  await directory("/usr");
  await page.getByLabel("Command to run in main").waitFor();
  // The actions for deleting and hiding look different.
  expect(await page.locator(".terminal-tabs .icon-close").count()).toBe(2);
  await page.getByRole("button", { name: "Delete a terminal" }).locator(".icon-trash").waitFor();
  await context.close();
});

test("a program can notify the person", async () => {
  await server.thread("notified");
  const { context, page } = await person(scene.browser, server);
  await page.goto(threadPage(server, "notified"));
  await connected(page);
  await type(page, "printf '\\033]9;Build <b>done</b>\\007\\033]9;4;1;50\\007'; echo sent-$((1+1))");
  await shows(page, /^sent-2$/m);
  await page.locator(".toast", { hasText: "main: Build <b>done</b>" }).waitFor();
  expect(await page.locator(".toast").count()).toBe(1);
  await page.reload();
  await connected(page);
  await shows(page, /^sent-2$/m);
  expect(await page.locator(".toast").count()).toBe(0);
  await context.close();
});
