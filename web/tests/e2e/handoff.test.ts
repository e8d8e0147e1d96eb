import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { complaints, connected, person, screenText, stage, threadPage, until } from "./harness.ts";

const scene = stage();
const { server } = scene;

interface Handoff {
  handoff_id: string;
  status: string;
  answer?: { approve?: boolean; option?: string; text?: string } | null;
}

/** Creates a hand-off, like an agent. */
async function ask(thread: string, request: object): Promise<Handoff> {
  const { terminal_id } = await server.call<{ terminal_id: string }>(
    "GET",
    `/api/threads/${thread}/terminal`,
  );
  return server.call("POST", `/api/terminals/${terminal_id}/handoffs`, request);
}

const PHONE = { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true };

/** The hand-off once it is settled. */
const settled = (handoff: Handoff): Promise<Handoff> =>
  until("the answer", async () => {
    const now = await server.call<Handoff>("GET", `/api/handoffs/${handoff.handoff_id}?wait_ms=2000`);
    return now.status === "open" ? null : now;
  });

const card = (page: Page, handoff: Handoff) => page.locator(`[data-handoff="${handoff.handoff_id}"]`);

test("a request for approval is shown in every view, and answered by one of its options", async () => {
  await server.thread("deploy");
  const { context, page } = await person(scene.browser, server);
  await page.goto(`${server.url}/`);
  await page.getByRole("heading", { name: "Now" }).waitFor();
  const asked = await ask("deploy", {
    kind: "approval",
    reason: "Deploy <b>1.2</b> to production?",
    options: ["blue", "green"],
  });
  await page.locator(".toast", { hasText: "deploy: Approval requested: Deploy <b>1.2</b>" }).waitFor();
  const waiting = page.getByRole("region", { name: /^Waiting for a person/ });
  await waiting.getByText("Deploy <b>1.2</b> to production?").waitFor();
  await until("the title", async () => (await page.title()) === "(1) Stead");
  await page.getByRole("link", { name: /^Inbox 1/ }).click();
  await card(page, asked).getByRole("link", { name: "deploy" }).click();
  await connected(page);
  const banner = page.locator(".handoff-banner");
  await banner.getByText("Deploy <b>1.2</b> to production?").waitFor();
  await banner.getByRole("button", { name: "green" }).click();
  expect(await settled(asked)).toMatchObject({
    status: "answered",
    answer: { approve: true, option: "green" },
  });
  await banner.waitFor({ state: "detached" });
  await until("the title", async () => (await page.title()) === "deploy · Stead");
  await page.goto(`${server.url}/ui/inbox`);
  const row = page.getByRole("row", { name: /Deploy/ });
  await row.getByText("approved").waitFor();
  await row.getByText("green").waitFor();
  expect(complaints.get(page)).toEqual([]);
  await context.close();
});

test("a request for input is answered by a text, and a refused answer stays in the field", async () => {
  await server.thread("question");
  const { context, page } = await person(scene.browser, server);
  const asked = await ask("question", { kind: "input", reason: "Which branch?" });
  await page.goto(`${server.url}/ui/inbox`);
  const field = card(page, asked).getByLabel("Your answer");
  await field.fill("release");
  await page.route("**/answer", (route) => route.abort(), { times: 1 });
  await card(page, asked).getByRole("button", { name: "Send" }).click();
  await card(page, asked).getByRole("alert").getByText("Couldn't send the answer.").waitFor();
  expect(await field.inputValue()).toBe("release");
  await field.press("Enter");
  expect(await settled(asked)).toMatchObject({ status: "answered", answer: { text: "release" } });
  await card(page, asked).waitFor({ state: "detached" });
  await page.getByText("No open requests.").waitFor();
  await context.close();
});

test("a request is declined with a note", async () => {
  await server.thread("declined");
  const { context, page } = await person(scene.browser, server);
  const asked = await ask("declined", { kind: "approval", reason: "Delete everything?" });
  await page.goto(threadPage(server, "declined", "timeline"));
  await card(page, asked).getByRole("button", { name: "Decline" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Note to the agent").fill("not today");
  await dialog.getByRole("button", { name: "Decline" }).click();
  expect((await settled(asked)).status).toBe("declined");
  await card(page, asked).waitFor({ state: "detached" });
  await context.close();
});

test("a secret goes from a masked field to the program, and remains nowhere in the page", async () => {
  const secret = "correct horse battery";
  await server.thread("vault");
  await server.call("POST", "/api/threads/vault/exec", {
    command: `read -rs -p 'Password: ' word </dev/tty; [ "$word" = '${secret}' ] && echo unlocked; unset word`,
    yield_ms: 200,
  });
  const { context, page } = await person(scene.browser, server);
  await page.goto(threadPage(server, "vault"));
  await connected(page);
  await page.locator(".command-status").getByText("waiting for input").waitFor();
  const asked = await ask("vault", { kind: "secret", reason: "The password of the vault" });
  const field = card(page, asked).getByLabel("Secret", { exact: true });
  expect(await field.getAttribute("type")).toBe("password");
  await field.fill(secret);
  await card(page, asked).getByRole("button", { name: "Show the secret" }).click();
  expect(await field.getAttribute("type")).toBe("text");
  await card(page, asked).getByRole("button", { name: "Hide the secret" }).click();
  await field.press("Enter");
  const done = await settled(asked);
  expect(done.status).toBe("answered");
  expect(JSON.stringify(done)).not.toContain(secret);
  await until("the program's answer", async () => (await screenText(page)).includes("unlocked"));
  await card(page, asked).waitFor({ state: "detached" });
  const kept = await page.evaluate(
    () => document.documentElement.outerHTML + JSON.stringify([{ ...localStorage }, location.href]),
  );
  // The command of this test names the secret; nothing else does.
  expect(kept.split(secret).length - 1).toBe(kept.split(`= '${secret}'`).length - 1);
  await context.close();
});

test("a person takes control, and releases it with a note", async () => {
  await server.thread("together");
  const { context, page } = await person(scene.browser, server);
  await page.goto(threadPage(server, "together"));
  await connected(page);
  await page.getByRole("button", { name: "Release control" }).click();
  const head = page.locator(".terminal-head");
  await head.getByText("View only").waitFor();
  const asked = await ask("together", { kind: "input", reason: "Please log in to the registry" });
  await card(page, asked).getByRole("button", { name: "Take control" }).click();
  await head.getByText("You have control").waitFor();
  await card(page, asked).getByText("You have control.").waitFor();
  await page.keyboard.type("echo logged-$((1+1))\n");
  await until("the command", async () => (await screenText(page)).includes("logged-2"));
  const finish = card(page, asked).getByRole("button", { name: "Answer and release control" });
  expect(await finish.isDisabled()).toBe(true);
  await card(page, asked).getByLabel("Note to the agent").fill("logged in as ada");
  await finish.click();
  expect(await settled(asked)).toMatchObject({ status: "answered", answer: { text: "logged in as ada" } });
  await head.getByText("View only").waitFor();
  await context.close();
});

test("on a phone, a secret is sent and a request is approved, by touch", async () => {
  const secret = "thumb typed words";
  await server.thread("pocket");
  await server.call("POST", "/api/threads/pocket/exec", {
    command: `read -rs -p 'Token: ' word </dev/tty; [ "$word" = '${secret}' ] && echo let-in; sleep 600`,
    yield_ms: 200,
  });
  const { context, page } = await person(scene.browser, server, PHONE);
  const fits = async (): Promise<void> =>
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
  await page.goto(`${server.url}/`);
  const waiting = page.getByRole("region", { name: /^Waiting for a person/ });
  await waiting.getByRole("link", { name: "pocket" }).waitFor();
  const asked = await ask("pocket", { kind: "secret", reason: "The token of the registry" });
  await waiting.getByText("The token of the registry").waitFor();
  await fits();
  await page.goto(`${server.url}/ui/inbox`);
  await card(page, asked).getByLabel("Secret", { exact: true }).tap();
  await page.keyboard.type(secret);
  await fits();
  await card(page, asked).getByRole("button", { name: "Send" }).tap();
  expect((await settled(asked)).status).toBe("answered");
  const second = await ask("pocket", { kind: "approval", reason: "Publish version 2?" });
  await card(page, second).getByRole("button", { name: "Approve" }).tap();
  expect(await settled(second)).toMatchObject({ status: "answered", answer: { approve: true } });
  await page.goto(threadPage(server, "pocket"));
  await connected(page);
  await until("the program's answer", async () => (await screenText(page)).includes("let-in"));
  await fits();
  await page.getByRole("button", { name: "Stop", exact: true }).tap();
  await page.locator(".command-status").getByText("cancelled").waitFor();
  expect(complaints.get(page)).toEqual([]);
  await context.close();
});
