import { expect, test } from "vitest";
import { complaints, connected, person, shows, stage, stranger, threadPage, until } from "./harness.ts";

const scene = stage();
const { server } = scene;

test("the appearance of the app and its terminals is chosen in the settings, and kept", async () => {
  const { context, page } = await person(scene.browser, server, { colorScheme: "light" });
  await page.goto(`${server.url}/ui/settings`);
  await page.getByRole("group", { name: "Theme" }).getByLabel("Dark").check();
  await page.getByRole("group", { name: "Density" }).getByLabel("Dense").check();
  await page.getByRole("group", { name: "Colours" }).getByLabel("High contrast").check();
  await page.getByLabel("Terminal text size").fill("17");
  await page.getByLabel("Font").fill("DejaVu Sans Mono");
  await page.getByLabel("Font").blur();
  await server.thread("looks");
  await page.goto(threadPage(server, "looks"));
  await connected(page);
  const look = await page.evaluate(() => {
    const rows = getComputedStyle(document.querySelector(".terminal .xterm-rows")!);
    return {
      classes: [...document.documentElement.classList].sort(),
      font: rows.fontFamily.split(",")[0],
      size: rows.fontSize,
      background: getComputedStyle(document.querySelector(".terminal .xterm-scrollable-element")!)
        .backgroundColor,
    };
  });
  expect(look).toEqual({
    classes: ["dark", "dense"],
    font: '"DejaVu Sans Mono"',
    size: "17px",
    background: "rgb(0, 0, 0)",
  });
  await page.goto(`${server.url}/ui/settings`);
  await page.getByRole("button", { name: "Reset to defaults" }).click();
  await until("the defaults", () => page.evaluate(() => document.documentElement.classList.length === 0));
  expect(await page.getByLabel("Font").inputValue()).toBe("");
  expect(complaints.get(page)).toEqual([]);
  await context.close();
});

test("the settings show which providers can be used, and how the others are set up", async () => {
  const { context, page } = await person(scene.browser, server);
  await page.goto(`${server.url}/ui/settings#providers`);
  const row = (name: string) => page.locator(".providers li", { has: page.getByRole("heading", { name }) });
  await row("local").locator(".badge.good", { hasText: "available" }).waitFor();
  await row("local").getByText("commands run as you, without isolation").waitFor();
  await row("e2b").getByText("not available").waitFor();
  await row("e2b").getByText("Not configured. Set e2b.key or E2B_API_KEY.").waitFor();
  await row("e2b").getByRole("button", { name: "Copy the command" }).waitFor();
  expect(await page.locator(".providers li").first().innerText()).toContain("default");
  await context.close();
});

test("a sign-in link of the settings signs in one other browser, once", async () => {
  const { context, page } = await person(scene.browser, server);
  await page.goto(`${server.url}/ui/settings`);
  await page.getByRole("button", { name: "Create a sign-in link" }).click();
  const field = page.getByLabel(/Open it in the other browser within/);
  const link = await field.inputValue();
  const other = await stranger(scene.browser, server);
  await other.page.goto(link);
  await other.page.goto(`${server.url}/`);
  await other.page.getByRole("heading", { name: "Now" }).waitFor();

  // A browser that is not signed in gets a page at any URL.
  const third = await stranger(scene.browser, server);
  for (const address of [link, `${server.url}/docs/api`, `${server.url}/ui/settings`, `${server.url}/`]) {
    const answer = await third.page.goto(address);
    expect(answer?.headers()["content-type"], address).toContain("text/html");
    await third.page.getByText("stead login").first().waitFor();
  }
  await other.page.goto(`${server.url}/ui/settings`);
  await other.page.getByRole("button", { name: "Sign out" }).click();
  await other.page.getByText("This browser is not signed in").waitFor();
  await other.page.getByRole("button", { name: "Copy the command" }).waitFor();
  await Promise.all([context.close(), other.context.close(), third.context.close()]);
});

test("share links are listed by thread and revoked", async () => {
  await server.thread("lent-out");
  const { terminal_id } = await server.call<{ terminal_id: string }>("GET", "/api/threads/lent-out/terminal");
  const { context, page } = await person(scene.browser, server);
  await page.goto(`${server.url}/ui/settings#shares`);
  await page.getByText("stead share create THREAD").waitFor();
  await server.call("POST", `/api/terminals/${terminal_id}/shares`, { name: "for Ada" });
  const share = page.locator(".shares li", { hasText: "for Ada" });
  await share.getByText("lent-out").waitFor();
  await share.getByRole("button", { name: "Revoke" }).click();
  await share.locator(".badge", { hasText: "revoked" }).waitFor();
  await context.close();
});

test("? shows the shortcuts, except in a text field", async () => {
  await server.thread("asked");
  const { context, page } = await person(scene.browser, server);
  const dialog = page.getByRole("dialog", { name: "Keyboard shortcuts" });
  for (const view of ["now", "inbox", "threads", "sandboxes", "projects", "leases", "metrics", "settings"]) {
    await page.goto(`${server.url}/ui/${view}`);
    await page.getByRole("heading", { level: 1 }).waitFor();
    await page.keyboard.press("?");
    await dialog.getByText("Search the scrollback").waitFor();
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
  }
  await page.goto(threadPage(server, "asked"));
  await connected(page);
  await page.locator(".terminal .xterm-helper-textarea").focus();
  await page.keyboard.type("echo what-now?\n");
  await shows(page, /^what-now\?$/m);
  expect(await dialog.count()).toBe(0);
  await page.keyboard.press("Control+Shift+?");
  await dialog.waitFor();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  // The terminal has the focus again.
  await page.keyboard.type("echo again\n");
  await shows(page, /^again$/m);
  await context.close();
});

test("notifications that are turned off are not shown", async () => {
  await server.thread("noisy");
  const { terminal_id } = await server.call<{ terminal_id: string }>("GET", "/api/threads/noisy/terminal");
  const { context, page } = await person(scene.browser, server);
  await page.goto(`${server.url}/ui/settings#notifications`);
  const choice = page.getByLabel("An agent asks for input, a secret or an approval");
  const ask = (reason: string): Promise<unknown> =>
    server.call("POST", `/api/terminals/${terminal_id}/handoffs`, { kind: "approval", reason });
  const counted = (count: number): Promise<unknown> =>
    until(`${count} requests in the navigation`, async () =>
      (await page.getByRole("link", { name: /^Inbox/ }).innerText()).includes(String(count)),
    );
  await choice.uncheck();
  await ask("Quietly?");
  await counted(1);
  expect(await page.locator(".toast").count()).toBe(0);
  await choice.check();
  await ask("Aloud?");
  await page.locator(".toast", { hasText: "Aloud?" }).waitFor();
  await counted(2);
  await context.close();
});
