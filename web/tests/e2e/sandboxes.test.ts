import { expect, test } from "vitest";
import { connected, person, stage } from "./harness.ts";

const scene = stage();
const { server } = scene;

test("a sandbox is created, and errors are shown at their fields", async () => {
  const { context, page } = await person(scene.browser, server);
  await page.goto(`${server.url}/ui/sandboxes`);
  await page.getByText("No sandboxes yet.").waitFor();
  await page.getByText("stead sandbox create demo").waitFor();
  await page.getByRole("button", { name: "New sandbox" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("demo");
  await dialog.getByLabel("Lifetime", { exact: true }).fill("soon");
  await dialog.getByRole("button", { name: "Create" }).click();
  await dialog.getByText("Must be a duration, for example 90s, 30m, 2h or 1d.").waitFor();
  await dialog.getByLabel("Lifetime", { exact: true }).fill("2h");
  await dialog.getByLabel("Memory").fill("lots");
  await dialog.getByRole("button", { name: "Create" }).click();
  await dialog.getByRole("alert").getByText("Couldn't create the sandbox.").waitFor();
  expect(await dialog.getByLabel("Memory").getAttribute("aria-invalid")).toBe("true");
  expect(await dialog.getByLabel("Name").inputValue()).toBe("demo");
  await dialog.getByLabel("Memory").fill("");
  await dialog.getByLabel("Labels").fill("team=web");
  await dialog.getByRole("button", { name: "Create" }).click();
  await page.waitForURL("**/ui/threads/sb_*");
  await connected(page);
  // Its thread is shown by the name of the sandbox everywhere.
  await page.getByRole("heading", { level: 1, name: "demo" }).waitFor();
  await page.getByRole("region", { name: "Recent threads" }).getByRole("link", { name: "demo" }).waitFor();
  await page.goto(`${server.url}/ui/now`);
  await page.getByRole("main").getByRole("link", { name: "demo" }).waitFor();
  await context.close();
});

test("a sandbox is suspended, forked and kept as a snapshot", async ({ skip }) => {
  const { items } = await server.call<{ items: { name: string; available?: boolean }[] }>(
    "GET",
    "/api/providers",
  );
  // The files of the sandbox must be on a disk of its own.
  if (items.find((provider) => provider.name === "namespace")?.available !== true) return skip();
  await server.call("POST", "/api/sandboxes", { name: "kept", provider: "namespace", memory: "256m" });
  const { context, page } = await person(scene.browser, server);
  await page.goto(`${server.url}/ui/sandboxes`);
  const row = page.getByRole("row", { name: /kept/ });
  await row.getByText("running").waitFor();
  await row.getByText(/ of 256 MiB$/).waitFor();
  await row.getByText(/^\d+ % of \d+ %$/).waitFor();
  await row.getByText(/^\d+ of \d+$/).waitFor();
  await row.getByRole("button", { name: "Suspend kept" }).click();
  await row.getByText("suspended").waitFor();
  await row.getByRole("button", { name: "Resume kept" }).click();
  await row.getByText("running").waitFor();
  const choose = async (action: string, name: string, button: string): Promise<void> => {
    await row.getByRole("button", { name: "More actions for kept" }).click();
    await page.getByRole("menuitem", { name: action }).click();
    await page.getByRole("dialog").getByRole("textbox").fill(name);
    await page.getByRole("dialog").getByRole("button", { name: button }).click();
  };
  await choose("Snapshot…", "first", "Create snapshot");
  await page.locator(".toast", { hasText: "Created the snapshot first." }).waitFor();
  const snapshots = await server.call<{ items: { name: string }[] }>("GET", "/api/snapshots");
  expect(snapshots.items.map((one) => one.name)).toContain("first");
  await choose("Fork…", "kept-too", "Fork");
  await page.waitForURL("**/ui/threads/sb_*");
  await page.getByRole("heading", { level: 1, name: "kept-too" }).waitFor();
  await connected(page);
  for (const { sandbox_id } of (
    await server.call<{ items: { sandbox_id: string }[] }>("GET", "/api/sandboxes?limit=100")
  ).items)
    await server.call("DELETE", `/api/sandboxes/${sandbox_id}`);
  await server.call("DELETE", "/api/snapshots/first");
  await context.close();
});

test("a sandbox is paused, resumed, extended and deleted", async () => {
  await server.call("POST", "/api/sandboxes", { name: "acted-on", timeout_s: 600 });
  const { context, page } = await person(scene.browser, server);
  await page.goto(`${server.url}/ui/sandboxes`);
  const row = page.getByRole("row", { name: /acted-on/ });
  await row.getByText("running").waitFor();
  await row.getByText(/^(9 min \d+ s|10 min), then suspend$/).waitFor();
  const choose = async (action: string): Promise<void> => {
    await row.getByRole("button", { name: "More actions for acted-on" }).click();
    await page.getByRole("menuitem", { name: action }).click();
  };
  await choose("Pause");
  await row.getByText("paused").waitFor();
  await row.getByRole("button", { name: "Resume acted-on" }).click();
  await row.getByText("running").waitFor();
  await choose("Extend lifetime…");
  await page.getByRole("dialog").getByLabel("Lifetime").fill("3h");
  await page.getByRole("button", { name: "Extend" }).click();
  await row.getByText(/^(2 h 59 min|3 h), then suspend$/).waitFor();
  await choose("Delete…");
  await page.getByRole("dialog").getByRole("textbox").fill("acted-on");
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await row.waitFor({ state: "detached" });
  await context.close();
});
