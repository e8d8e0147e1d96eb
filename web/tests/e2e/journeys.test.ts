/** Journeys through the app from end to end, in each browser, with kills of the server in between. */

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import type { Browser, Locator } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { hasFirefox, launchFirefox } from "./firefox.ts";
import { connected, launch, person, Server, screenText, shows, threadPage, type, until } from "./harness.ts";

const BROWSERS = [
  { name: "Chromium", start: () => launch(), isHere: true },
  { name: "Firefox", start: launchFirefox, isHere: hasFirefox },
];
if (!hasFirefox) console.log("journeys: skipped in Firefox: firefox-esr is missing or too old");

/** Chooses a folder where Playwright cannot: BiDi of Firefox does not support directories. */
async function chooseFolder(picker: Locator, folder: string): Promise<void> {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((file) => file.isFile())
    .map((file) => {
      const whole = join(file.parentPath, file.name);
      return { path: relative(dirname(folder), whole), text: readFileSync(whole, "utf8") };
    });
  await picker.evaluate((input: HTMLInputElement, chosen) => {
    const paths = new Map(chosen.map(({ path }) => [path.slice(path.lastIndexOf("/") + 1), path]));
    Object.defineProperty(File.prototype, "webkitRelativePath", {
      get(this: File) {
        return paths.get(this.name) ?? "";
      },
    });
    const data = new DataTransfer();
    for (const [fileName, path] of paths)
      data.items.add(new File([chosen.find((one) => one.path === path)!.text], fileName));
    input.files = data.files;
    input.dispatchEvent(new Event("change", { bubbles: true }));
  }, files);
}

describe.each(BROWSERS.filter((one) => one.isHere))("in $name", ({ name, start }) => {
  const server = new Server();
  let browser: Browser;
  beforeAll(async () => {
    await server.start();
    browser = await start();
  });
  afterAll(async () => {
    await browser?.close();
    await server.clear();
  });

  /** Kills the server with SIGKILL and starts it again. */
  const killed = async (): Promise<void> => {
    await server.kill();
    await server.start();
  };

  const terminalOf = async (thread: string): Promise<string> =>
    (await server.call<{ terminal_id: string }>("GET", `/api/threads/${thread}/terminal`)).terminal_id;

  test("a person watches a running command and stops it", async () => {
    await server.thread("busy", { cwd: "/tmp" });
    const { context, page } = await person(browser, server);
    await page.goto(threadPage(server, "busy"));
    await connected(page);
    const { command_id } = await server.call<{ command_id: string }>("POST", "/api/threads/busy/exec", {
      command: "echo working; sleep 600",
      yield_ms: 100,
    });
    const status = page.locator(".command-status");
    await status.getByText("running").waitFor();
    await shows(page, /^working$/m);
    await killed();
    await connected(page);
    await status.getByText("running").waitFor();
    await page.goto(`${server.url}/`);
    const row = page.getByRole("region", { name: /^Running/ }).locator("[data-thread=busy]");
    await row.getByText("echo working; sleep 600").waitFor();
    await killed();
    await row.getByRole("button", { name: "Stop busy" }).click();
    const settled = await until("the end of the command", async () => {
      const now = await server.call<{ status: string }>("GET", `/api/commands/${command_id}`);
      return now.status === "running" ? null : now;
    });
    expect(settled.status).toBe("cancelled");
    await page
      .getByRole("region", { name: /^Failed/ })
      .locator("[data-thread=busy]")
      .getByText("cancelled")
      .waitFor();
    await context.close();
  });

  test("a secret reaches the program and is stored nowhere", async () => {
    const secret = `s3cret-${name}-${"k".repeat(12)}`;
    const digest = createHash("sha256").update(secret).digest("hex");
    await server.thread("vault", { cwd: "/tmp" });
    const events = server.collectEvents();
    await server.call("POST", "/api/threads/vault/exec", {
      command: "read -rs -p 'Password: ' word </dev/tty; echo; printf %s \"$word\" | sha256sum; unset word",
      yield_ms: 200,
    });
    const terminal = await terminalOf("vault");
    const { context, page } = await person(browser, server);
    await page.goto(threadPage(server, "vault"));
    await connected(page);
    await page.locator(".command-status").getByText("waiting for input").waitFor();
    const { handoff_id } = await server.call<{ handoff_id: string }>(
      "POST",
      `/api/terminals/${terminal}/handoffs`,
      { kind: "secret", reason: "The password of the vault" },
    );
    const card = page.locator(`[data-handoff="${handoff_id}"]`);
    const field = card.getByLabel("Secret", { exact: true });
    await field.waitFor();
    await killed();
    await connected(page);
    expect(await field.getAttribute("type")).toBe("password");
    await field.fill(secret);
    await field.press("Enter");
    await shows(page, digest.slice(0, 40));
    await card.waitFor({ state: "detached" });
    await until("the event of the answer", () =>
      events
        .text()
        .split("\n\n")
        .some((event) => event.includes("handoff_answered") && event.includes(handoff_id)),
    );
    await killed();
    await connected(page);
    await shows(page, digest.slice(0, 40));

    const places = new Map<string, string | Buffer>([
      ["the page", await page.content()],
      ["the screen", await screenText(page)],
      [
        "the browser's storage",
        await page.evaluate(() => JSON.stringify([{ ...localStorage }, location.href])),
      ],
      ["the log of all servers", server.logged],
      ["the events", events.text()],
    ]);
    events.end();
    for (const route of [
      `/api/handoffs/${handoff_id}`,
      `/api/terminals/${terminal}/commands`,
      `/api/terminals/${terminal}/snapshot?scrollback=1000`,
      "/api/threads/vault",
      "/api/threads/vault/messages",
      "/api/search?q=password",
    ])
      places.set(route, JSON.stringify(await server.call("GET", route)));
    const raw = async (route: string): Promise<string> => {
      const response = await fetch(server.url + route, {
        headers: { authorization: `Bearer ${server.token}` },
      });
      expect(response.status, route).toBe(200);
      return response.text();
    };
    const all = <T>(route: string): Promise<{ items: T[] }> => server.call("GET", route);
    const commands = await all<{ command_id: string }>(`/api/terminals/${terminal}/commands`);
    for (const { command_id } of commands.items) {
      for (const stream of ["stdout", "stderr"]) {
        const route = `/api/commands/${command_id}/output?stream=${stream}`;
        places.set(route, await raw(route));
      }
    }
    const versions = await all<{ version: number }>(`/api/terminals/${terminal}/versions`);
    for (const { version } of versions.items) {
      const route = `/api/terminals/${terminal}/versions/${version}`;
      places.set(route, await raw(route));
    }
    expect(Math.min(commands.items.length, versions.items.length)).toBeGreaterThan(0);
    places.set("the recording", await raw(`/api/terminals/${terminal}/recording`));
    // The store with its journal, the logs of the terminals, checkpoints and all other files.
    for (const file of readdirSync(server.home, { recursive: true, withFileTypes: true })) {
      const path = join(file.parentPath, file.name);
      if (file.isFile()) places.set(path, readFileSync(path));
    }
    const forms = [
      secret,
      Buffer.from(secret).toString("base64").slice(0, -4),
      Buffer.from(secret).toString("hex"),
    ];
    const found = [...places].filter(([, content]) => forms.some((form) => content.includes(form)));
    expect(found.map(([place]) => place)).toEqual([]);
    expect(places.get("the recording")).toContain(digest.slice(0, 40));
    expect(places.size).toBeGreaterThan(12);
    await context.close();
  });

  test("a folder is uploaded, a file of it edited, and both are downloaded", async () => {
    await server.thread("moved");
    const { context, page } = await person(browser, server, { acceptDownloads: true });
    await page.goto(threadPage(server, "moved", "files"));
    const item = (path: string) => page.locator(`[role=treeitem][data-path="${path}"]`);
    await item("/workspace").waitFor();
    const there = mkdtempSync(join(tmpdir(), "journey-"));
    try {
      const folder = join(there, "station");
      mkdirSync(join(folder, "data", "raw"), { recursive: true });
      writeFileSync(join(folder, "README.md"), "# Station\n");
      writeFileSync(join(folder, "data", "raw", "läufe.csv"), "1,2,3\n");
      writeFileSync(join(folder, "data", "empty"), "");
      const picker = page.getByLabel("Folder to upload");
      if (name === "Chromium") await picker.setInputFiles(folder);
      else await chooseFolder(picker, folder);
      await page.getByText("3 of 3 uploads ended").waitFor();
      await item("/workspace/station").click();
      await killed();
      await item("/workspace/station/README.md").click();
      const content = page.locator(".file-editor .cm-content");
      await content.getByText("# Station").waitFor();
      await content.click();
      await page.keyboard.press("Control+End");
      await page.keyboard.type("edited");
      await page.getByText("unsaved").waitFor();
      await killed();
      await page.getByRole("button", { name: "Save" }).click();
      await page.locator(".toast", { hasText: "Saved." }).waitFor();
      await killed();
      const saved = async (by: () => Promise<unknown>, as: string): Promise<string> => {
        const [download] = await Promise.all([page.waitForEvent("download"), by()]);
        expect(download.suggestedFilename()).toBe(as);
        const path = join(there, as);
        await download.saveAs(path);
        return path;
      };
      const file = await saved(() => page.getByRole("link", { name: "Download" }).click(), "README.md");
      expect(readFileSync(file, "utf8")).toBe("# Station\nedited");
      await page.getByText("Uploads and drops go to /workspace/station").waitFor();
      const archive = await saved(async () => {
        await page.getByRole("button", { name: "Folder actions" }).click();
        await page.getByRole("menuitem", { name: "Download folder" }).click();
      }, "station.tar.gz");
      const unpacked = join(there, "unpacked");
      mkdirSync(unpacked);
      execFileSync("tar", ["-xzf", archive, "-C", unpacked]);
      expect(readFileSync(join(unpacked, "station/data/raw/läufe.csv"), "utf8")).toBe("1,2,3\n");
      expect(readFileSync(join(unpacked, "station/README.md"), "utf8")).toBe("# Station\nedited");
      expect(readFileSync(join(unpacked, "station/data/empty"), "utf8")).toBe("");
    } finally {
      rmSync(there, { recursive: true });
    }
    await context.close();
  });

  test("a sandbox with a bad field is corrected", async () => {
    const { context, page } = await person(browser, server);
    await page.goto(`${server.url}/ui/sandboxes`);
    await page.getByRole("button", { name: "New sandbox" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Name").fill("corrected");
    await dialog.getByLabel("Memory").fill("lots");
    await dialog.getByRole("button", { name: "Create" }).click();
    await dialog.getByRole("alert").getByText("Couldn't create the sandbox.").waitFor();
    expect(await dialog.getByLabel("Memory").getAttribute("aria-invalid")).toBe("true");
    await server.kill();
    // The entered values survive the restart of the server.
    await dialog.getByLabel("Memory").fill("");
    await dialog.getByRole("button", { name: "Create" }).click();
    await dialog.getByRole("alert").waitFor();
    expect(await dialog.getByLabel("Name").inputValue()).toBe("corrected");
    await server.start();
    await dialog.getByRole("button", { name: "Create" }).click();
    await page.waitForURL("**/ui/threads/sb_*");
    await connected(page);
    const { items } = await server.call<{ items: { name: string }[] }>("GET", "/api/sandboxes");
    expect(items.map((sandbox) => sandbox.name)).toEqual(["corrected"]);
    await context.close();
  });

  test("terminals side by side are searched, and replayed from a marker", async () => {
    await server.thread("split", { cwd: "/tmp" });
    await server.exec("split", "echo first-$((1+0)); seq 1 200");
    await server.exec("split", "echo second-$((1+1))");
    const { context, page } = await person(browser, server);
    await page.goto(threadPage(server, "split"));
    await connected(page);
    await page.getByRole("button", { name: "New terminal" }).click();
    await until("two tabs", async () => (await page.locator(".terminal-tab").count()) === 2);
    await page.getByRole("button", { name: "Show main side by side" }).click();
    await connected(page, 0);
    await connected(page, 1);
    await killed();
    await connected(page, 0);
    await connected(page, 1);
    // The new terminal is the first pane; the main one is beside it.
    await type(page, "echo beside-$((2+1))", 0);
    await shows(page, /^beside-3$/m, 0);
    await shows(page, /^second-2$/m, 1);
    await page.locator(".terminal .xterm-helper-textarea").nth(1).focus();
    await page.keyboard.press("Control+Shift+F");
    await page.getByLabel("Search the scrollback").fill("first-1");
    await page.locator(".match-count", { hasText: "1 of 1" }).waitFor();
    await page.keyboard.press("Escape");

    const marker = async (): Promise<void> => {
      await page.getByLabel("Jump to a command").selectOption({ index: 2 });
      await until("the screen at the marker", async () => {
        const text = await screenText(page);
        return !/^second-2$/m.test(text) && text.includes("200");
      });
    };
    await page.goto(threadPage(server, "split", "replay"));
    await shows(page, /^second-2$/m);
    await marker();
    await killed();
    await page.reload();
    await shows(page, /^second-2$/m);
    await marker();
    await context.close();
  });
});
