import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { complaints, connected, launch, person, Server, showStatus, threadPage } from "./harness.ts";

/** A server whose sandboxes have networks of their own, where this provider works. */
const server = new Server("--provider", "namespace");
const local = new Server();
let browser: Browser;
let missing: string[] = [];

beforeAll(async () => {
  await local.start();
  const { items } = await local.call<{ items: { name: string; missing: string[] }[] }>(
    "GET",
    "/api/providers",
  );
  missing = items.find(({ name }) => name === "namespace")?.missing ?? ["the provider namespace"];
  if (missing.length === 0) await server.start();
  else console.log(`ports of sandboxes are not tested, this machine lacks ${missing.join("; ")}`);
  browser = await launch();
});
afterAll(async () => {
  await browser?.close();
  await server.clear();
  await local.clear();
});

const SERVE =
  "cd /tmp && echo '<p>from inside' > index.html && python3 -m http.server 8765 >/dev/null 2>&1 &";
/** Returns when the program accepts connections. */
const WAIT = "until (exec 3<>/dev/tcp/127.0.0.1/8765) 2>/dev/null; do :; done";

test("a port of a sandbox appears with a link that opens it", async (context_) => {
  if (missing.length > 0) return context_.skip();
  const { thread_id: id } = await server.call<{ thread_id: string }>("POST", "/api/sandboxes", {});
  const { context, page } = await person(browser, server);
  await page.goto(threadPage(server, id));
  await connected(page);
  await showStatus(page);
  const section = page.locator(".status-section", { has: page.getByRole("heading", { name: "Ports" }) });
  await section.locator("summary").click();
  await section.getByText("No program listens on a port.").waitFor();
  await server.exec(id, SERVE);
  await server.exec(id, WAIT);
  // The page reads the ports again when a command ends.
  await section.locator(".ports").getByText("8765", { exact: true }).waitFor();
  const [preview] = await Promise.all([
    context.waitForEvent("page"),
    section.getByRole("button", { name: "Open port 8765" }).click(),
  ]);
  await preview.getByText("from inside").waitFor();
  expect(new URL(preview.url()).hostname).toMatch(/^p-[a-z2-7]{61}\.localhost$/);
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await section.getByRole("button", { name: "Copy a link to port 8765" }).click();
  await page.getByText("Link copied.").waitFor();
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  expect(new URL(copied).hostname).toMatch(/^p-[a-z2-7]{61}\.localhost$/);
  expect(complaints.get(page)).toEqual([]);
  await context.close();
});

test("the destinations of a sandbox appear with the verdict of its egress rules", async (context_) => {
  if (missing.length > 0) return context_.skip();
  const { thread_id: id } = await server.call<{ thread_id: string }>("POST", "/api/sandboxes", {});
  const { context, page } = await person(browser, server);
  await page.goto(threadPage(server, id));
  await connected(page);
  await showStatus(page);
  const section = page.locator(".status-section", { has: page.getByRole("heading", { name: "Egress" }) });
  await section.locator("summary").click();
  await section.getByText("No program has connected").waitFor();
  // A datagram needs no answer, and addresses for documentation never answer.
  await server.exec(id, "echo > /dev/udp/203.0.113.9/4000; echo > /dev/udp/10.255.255.1/53");
  const entry = (place: string) => section.locator("li", { hasText: place });
  await entry("203.0.113.9:4000").getByText("allowed").waitFor();
  await entry("203.0.113.9:4000").getByText("udp, 1 attempt, ").waitFor();
  await entry("10.255.255.1:53").getByText("refused").waitFor();
  expect(complaints.get(page)).toEqual([]);
  await context.close();
});

test("the list of sandboxes shows the ports of a running one", async (context_) => {
  if (missing.length > 0) return context_.skip();
  const made = await server.call<{ thread_id: string }>("POST", "/api/sandboxes", { name: "served" });
  await server.exec(made.thread_id, SERVE);
  await server.exec(made.thread_id, WAIT);
  const { context, page } = await person(browser, server);
  await page.goto(`${server.url}/ui/sandboxes`);
  const row = page.getByRole("row", { name: /served/ });
  const open = async (): Promise<void> => {
    await row.getByRole("button", { name: "More actions for served" }).click();
    await page.getByRole("menuitem", { name: "Ports…" }).click();
  };
  await row.locator('dt:text-is("Memory") + dd', { hasText: /^[\d.]+ [KM]iB of [\d.]+ [MG]iB$/ }).waitFor();
  await open();
  const dialog = page.getByRole("dialog", { name: "Ports of served" });
  await dialog.locator(".ports").getByText("8765", { exact: true }).waitFor();
  await dialog.getByRole("button", { name: "Open port 8765" }).waitFor();
  await dialog.getByRole("button", { name: "Close" }).click();
  await context.close();
});

test("a thread without isolation explains that its programs use the machine's ports, and has no egress log", async () => {
  await local.thread("plain");
  const { context, page } = await person(browser, local);
  await page.goto(threadPage(local, "plain"));
  await connected(page);
  await showStatus(page);
  await page.getByRole("heading", { name: "Ports" }).click();
  await page.getByText("so their ports are the machine's").waitFor();
  await page.getByText("stead ports plain").waitFor();
  await page.getByRole("heading", { name: "Egress" }).click();
  await page.getByText("keeps no log of its connections").waitFor();
  await context.close();
});
