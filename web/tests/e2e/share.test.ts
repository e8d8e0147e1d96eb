import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import {
  complaints,
  connected,
  person,
  screenText,
  shows,
  stage,
  stranger,
  threadPage,
  type,
  until,
} from "./harness.ts";

const scene = stage();
const { server } = scene;

/** Creates a link in the page, like a person, and returns it. */
async function share(page: Page, name: string, lifetime = "1 hour"): Promise<string> {
  await page.getByRole("button", { name: "More terminal actions" }).click();
  await page.getByRole("menuitem", { name: "Share a read-only link…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Expires after").selectOption({ label: lifetime });
  await dialog.getByLabel("Name").fill(name);
  await dialog.getByRole("button", { name: "Create link" }).click();
  const link = await dialog.getByLabel(/Copy it now/).inputValue();
  expect(link).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/ui\/share#[\w-]{43}$/);
  return link;
}

test("a share link shows one terminal live and read-only, until it is revoked", async () => {
  await server.thread("lent");
  const owner = await person(scene.browser, server);
  await owner.context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await owner.page.goto(threadPage(server, "lent"));
  await connected(owner.page);
  const link = await share(owner.page, "review <b>x</b>");
  await until(
    "the link in the clipboard",
    async () => (await owner.page.evaluate(() => navigator.clipboard.readText())) === link,
  );
  await owner.page.getByRole("dialog").locator(".shares").getByText("review <b>x</b>").waitFor();
  await owner.page.getByRole("button", { name: "Close" }).click();

  const guest = await stranger(scene.browser, server);
  const asked: string[] = [];
  guest.page.on("request", (request) => asked.push(`${request.method()} ${new URL(request.url()).pathname}`));
  await guest.page.goto(link);
  await connected(guest.page);
  await guest.page.getByRole("heading", { name: "review <b>x</b>" }).waitFor();
  await type(owner.page, "echo for-all-$((40+2))");
  await shows(guest.page, /^for-all-42$/m);

  // The secret is in no address, storage or cookie that a script can read, and was sent once, in a body.
  const secret = new URL(link).hash.slice(1);
  const visible = await guest.page.evaluate(() =>
    JSON.stringify([
      location.href,
      document.cookie,
      { ...localStorage },
      { ...sessionStorage },
      performance.getEntriesByType("resource").map((one) => one.name),
    ]),
  );
  expect(visible).not.toContain(secret);
  expect(asked.filter((one) => one === "POST /api/shares/open").length).toBe(1);
  const cookies = await guest.context.cookies(
    `${server.url}/api/terminals/${new URL(guest.page.url()).pathname.split("/").at(-1)}/ws`,
  );
  expect(cookies).toMatchObject([{ httpOnly: true, sameSite: "Strict" }]);
  expect(await guest.context.cookies(`${server.url}/api/threads`)).toEqual([]);

  // The page has no actions, and keys are not sent.
  for (const name of ["Take control", "Send a signal", "Paste"]) {
    expect(await guest.page.getByRole("button", { name, exact: true }).count(), name).toBe(0);
  }
  await type(guest.page, "echo typed-by-guest");
  const size = await owner.page.locator(".size").innerText();
  await guest.page.setViewportSize({ width: 700, height: 500 });
  await type(owner.page, "echo owner-again");
  await shows(guest.page, /^owner-again$/m);
  expect(await screenText(owner.page)).not.toContain("typed-by-guest");
  expect(await owner.page.locator(".size").innerText()).toBe(size);
  // Their own scripts cannot, either: the cookie grants nothing else.
  const refused = await guest.page.evaluate(async () => {
    const terminal = location.pathname.split("/").at(-1);
    const ask = (method: string, path: string): Promise<number> =>
      fetch(path, {
        method,
        ...(method === "POST" && { body: '{"data":"x"}', headers: { "content-type": "application/json" } }),
      }).then((answer) => answer.status);
    return Promise.all([
      ask("POST", `/api/terminals/${terminal}/input`),
      ask("GET", `/api/terminals/${terminal}`),
      ask("GET", `/api/terminals/${terminal}/versions`),
      ask("GET", "/api/threads"),
    ]);
  });
  expect(refused).toEqual([403, 403, 403, 401]);

  // A reload needs no secret.
  await guest.page.reload();
  await connected(guest.page);
  await shows(guest.page, /^owner-again$/m);

  await owner.page.goto(`${server.url}/ui/settings`);
  await owner.page
    .locator(".shares li", { hasText: "review" })
    .getByRole("button", { name: "Revoke" })
    .click();
  await owner.page
    .locator(".shares li", { hasText: "review" })
    .locator(".badge", { hasText: "revoked" })
    .waitFor();
  await guest.page.getByText("This link has expired or was revoked").waitFor();
  await guest.page.goto(link);
  await guest.page.reload();
  await guest.page.getByText("This link does not work").waitFor();
  expect(complaints.get(guest.page)).toEqual([]);
  await Promise.all([owner.context.close(), guest.context.close()]);
});

test("a share link survives a kill of the server, and expires", async () => {
  await server.exec("short", "echo before");
  const { terminal_id } = await server.call<{ terminal_id: string }>("GET", "/api/threads/short/terminal");
  const { url } = await server.call<{ url: string }>("POST", `/api/terminals/${terminal_id}/shares`, {
    expires_in_s: 3600,
  });
  const guest = await stranger(scene.browser, server);
  await guest.page.goto(url);
  await connected(guest.page);
  await shows(guest.page, /^before$/m);
  await server.kill();
  await guest.page.getByText(/Connection lost/).waitFor();
  await server.start();
  await connected(guest.page);
  await server.exec("short", "echo after");
  await shows(guest.page, /^after$/m);

  const brief = await server.call<{ url: string }>("POST", `/api/terminals/${terminal_id}/shares`, {
    expires_in_s: 4,
  });
  const late = await stranger(scene.browser, server);
  await late.page.goto(brief.url);
  await connected(late.page);
  await late.page.getByText("This link has expired or was revoked").waitFor();
  await until(
    "the first guest still sees",
    async () => (await guest.page.locator("section.terminal").getAttribute("data-link")) === "connected",
  );
  await Promise.all([guest.context.close(), late.context.close()]);
});
