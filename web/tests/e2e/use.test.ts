import { readFileSync } from "node:fs";
import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import {
  complaints,
  connected,
  person,
  screenText,
  showStatus,
  shows,
  stage,
  threadPage,
  type,
  until,
} from "./harness.ts";

const scene = stage();
const { server } = scene;

/** Opens the terminal of a new thread. */
async function at(thread: string): Promise<{ page: Page; close: () => Promise<void> }> {
  await server.thread(thread);
  const { context, page } = await person(scene.browser, server);
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
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

async function paste(page: Page, text: string): Promise<void> {
  await page.evaluate((given) => navigator.clipboard.writeText(given), text);
  await page.getByRole("button", { name: "Paste", exact: true }).click();
}

test("a paste of several lines is bracketed, or shown before it is typed", async () => {
  const { page, close } = await at("pasting");
  await type(page, "echo shell-$((1+1))");
  // Including the prompt that follows: only then does the shell accept bracketed pastes.
  await shows(page, /^shell-2\s*\n.*[#$]\s*$/m);
  // This shell accepts bracketed pastes: no line runs before Enter is pressed.
  await paste(page, "echo one\necho two");
  await shows(page, /echo one\s+echo two/);
  expect(await page.getByRole("dialog").count()).toBe(0);
  expect(await screenText(page)).not.toMatch(/^one$/m);
  await type(page, "");
  await shows(page, /^one\s*\ntwo$/m);

  // This program does not accept them.
  await type(page, "echo ready-$((2+1)); cat");
  await shows(page, /^ready-3$/m);
  await paste(page, "first line\nsecond line\n");
  const dialog = page.getByRole("dialog");
  await dialog.getByText("Paste this text?").waitFor();
  expect(await dialog.locator(".sample").innerText()).toContain("second line");
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await paste(page, "third line\nfourth line\n");
  await dialog.getByRole("button", { name: "Paste" }).click();
  await shows(page, /^fourth line$/m);
  expect(await screenText(page)).not.toContain("first line");

  // The sequence that ends a bracketed paste is removed, and the page says so.
  await paste(page, "safe\x1b[201~\x1b[31mtext");
  await dialog.getByText("hidden characters").waitFor();
  expect(await dialog.locator(".sample").innerText()).toBe("safe[201~[31mtext");
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await close();
});

/** The middle of a text on the screen, in pixels. */
async function place(page: Page, text: string): Promise<{ x: number; y: number }> {
  return until(`${text} on the screen`, () =>
    page.evaluate((wanted) => {
      const cols = Number(/^\d+/.exec(document.querySelector(".size")?.textContent ?? "")?.[0]);
      // The last such row, because the command that printed the text may be above it.
      const rows = [...document.querySelectorAll(".terminal .xterm-rows > div")].reverse();
      const row = rows.find((one) => one.textContent?.trimEnd() === wanted);
      if (!row) return null;
      const { left, top, width, height } = row.getBoundingClientRect();
      return { x: left + (width / cols) * (wanted.length / 2), y: top + height / 2 };
    }, text),
  );
}

async function point(page: Page, text: string): Promise<{ x: number; y: number }> {
  const where = await place(page, text);
  await page.mouse.move(where.x - 30, where.y + 60);
  await page.mouse.move(where.x, where.y, { steps: 3 });
  return where;
}

test("links show where they lead, and lead to the web only", async () => {
  const { page, close } = await at("links");
  await page
    .context()
    .route(/example\.org/, (route) => route.fulfill({ contentType: "text/html", body: "<p>elsewhere" }));
  await type(
    page,
    [
      "clear; echo https://example.org/plain",
      "link='\\033]8;;%s\\033\\\\%s\\033]8;;\\033\\\\\\n'",
      "printf \"$link\" https://example.org/hidden click-here 'javascript:alert(1)' not-here",
      "echo shown-$((1+1))",
    ].join("; "),
  );
  await shows(page, /^shown-2$/m);

  let where = await point(page, "https://example.org/plain");
  await page.locator(".terminal-foot .target", { hasText: "Opens https://example.org/plain" }).waitFor();
  const [plain] = await Promise.all([
    page.context().waitForEvent("page"),
    page.mouse.click(where.x, where.y),
  ]);
  await plain.waitForURL("https://example.org/plain");
  expect(await plain.evaluate(() => window.opener)).toBe(null);
  await plain.close();

  // The text of this link differs from its target, so the page asks first.
  where = await point(page, "click-here");
  await page.locator(".terminal-foot .target", { hasText: "Opens https://example.org/hidden" }).waitFor();
  await page.mouse.click(where.x, where.y);
  const dialog = page.getByRole("dialog");
  expect(await dialog.locator(".sample").innerText()).toBe("https://example.org/hidden");
  const [hidden] = await Promise.all([
    page.context().waitForEvent("page"),
    dialog.getByRole("button", { name: "Open" }).click(),
  ]);
  await hidden.waitForURL("https://example.org/hidden");
  await hidden.close();

  where = await point(page, "not-here");
  await page.mouse.click(where.x, where.y);
  await type(page, "echo after-$((1+1))");
  await shows(page, /^after-2$/m);
  expect(await page.locator(".terminal-foot .target").count()).toBe(0);
  expect(await page.getByRole("dialog").count()).toBe(0);
  expect(page.context().pages().length).toBe(1);
  await close();
});

test("a search finds text that has scrolled away, and the wheel scrolls to it", async () => {
  const { page, close } = await at("searching");
  await type(page, "for i in $(seq 1 500); do echo row-$i; done");
  await shows(page, /^row-500$/m);
  expect(await screenText(page)).not.toContain("row-77\n");
  await page.keyboard.press("Control+Shift+F");
  const field = page.getByLabel("Search the scrollback");
  await field.fill("row-77");
  await shows(page, /^row-77$/m);
  await field.fill("no such text");
  await page.getByText("No matches").waitFor();
  await page.keyboard.press("Escape");
  await field.waitFor({ state: "detached" });
  await page.locator(".terminal .xterm-screen").hover();
  const first = async (): Promise<number> => Number(/row-(\d+)/.exec(await screenText(page))?.[1]);
  const found = await first();
  await page.mouse.wheel(0, -300);
  await until("earlier rows", async () => (await first()) < found);
  const earlier = await first();
  await page.mouse.wheel(0, 300);
  await until("later rows", async () => (await first()) > earlier);
  await type(page, "echo typed-$((1+1))");
  await shows(page, /^typed-2$/m);
  await close();
});

test("larger text means fewer columns, here and for the program", async () => {
  const { page, close } = await at("sizes");
  const size = async (): Promise<string> => page.locator(".size").innerText();
  // A terminal that was never shown takes the size of the window.
  const before = await until("the window's size", async () => {
    const now = await size();
    return now === "" || now === "80×24" ? null : now;
  });
  await page.getByRole("button", { name: "More terminal actions" }).click();
  await page.getByRole("menuitem", { name: "Larger text" }).click();
  const after = await until("another size", async () => {
    const now = await size();
    return now === before ? null : now;
  });
  const columns = (text: string): number => Number(text.split("×")[0]);
  expect(columns(after)).toBeLessThan(columns(before));
  await type(page, "clear; stty size");
  const [cols, rows] = after.split("×");
  await shows(page, new RegExp(`^${rows} ${cols}$`, "m"));
  await close();
});

test("a signal reaches the program in the foreground", async () => {
  const { page, close } = await at("signals");
  await type(
    page,
    "sh -c 'trap \"echo got-it; exit\" TERM; echo up-and-running; while :; do sleep 0.1; done'",
  );
  await shows(page, /^up-and-running$/m);
  await page.getByRole("button", { name: "Send a signal" }).click();
  await page.getByRole("menuitem", { name: "SIGTERM" }).click();
  await shows(page, /^got-it$/m);
  await close();
});

test("the recording is saved under the terminal's name", async () => {
  const { page, close } = await at("recorded");
  await type(page, "echo kept-$((40+2))");
  await shows(page, /^kept-42$/m);
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    (async () => {
      await page.getByRole("button", { name: "More terminal actions" }).click();
      await page.getByRole("menuitem", { name: "Download recording" }).click();
    })(),
  ]);
  expect(download.suggestedFilename()).toMatch(/^term_[0-9a-f]{32}\.cast$/);
  const [head, ...events] = readFileSync(await download.path(), "utf8")
    .trimEnd()
    .split("\n");
  expect(JSON.parse(head!)).toMatchObject({ version: 2 });
  expect(events.map((line) => (JSON.parse(line) as [number, string, string])[2]).join("")).toContain(
    "kept-42",
  );
  await close();
});

test("the exec box runs a command, shows its receipt and remembers it", async () => {
  const { page, close } = await at("boxed");
  const box = page.getByLabel(/Command to run in/);
  await box.fill("cd /usr && echo out && echo err >&2 && false");
  await box.press("Enter");
  const receipt = page.locator(".receipt");
  await receipt.getByText("exit 1").waitFor();
  await receipt.locator("summary").click();
  await receipt.locator(".output.stdout", { hasText: "out" }).waitFor();
  await receipt.locator(".output.stderr", { hasText: "err" }).waitFor();
  await showStatus(page);
  await until("the directory in the panel", async () =>
    (await page.locator(".panel").innerText()).includes("/usr"),
  );
  await box.press("ArrowUp");
  await until(
    "the command before",
    async () => (await box.inputValue()) === "cd /usr && echo out && echo err >&2 && false",
  );
  await box.fill("nano\u0000");
  await box.press("Enter");
  await page.locator(".toast").waitFor();
  await close();
});

test("a program cannot write the clipboard", async () => {
  const { page, close } = await at("clipboard");
  await page.evaluate(() => navigator.clipboard.writeText("mine"));
  await type(page, "printf '\\033]52;c;%s\\007' \"$(printf stolen | base64)\"; echo tried-$((1+1))");
  await shows(page, /^tried-2$/m);
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe("mine");
  await close();
});

test("the panel shows the usage of the instance from events, without requests", async () => {
  const { page, close } = await at("measured");
  const processes = async (): Promise<number> =>
    Number(/Processes\s+(\d+)/.exec(await page.locator(".panel").innerText())?.[1]);
  await showStatus(page);
  // A shell that starts has helper processes for a moment.
  await type(page, "echo ready-$((1+1))");
  await shows(page, /^ready-2$/m);
  const lease = await server.call<{ instance: { metrics: { processes: number } } }>(
    "GET",
    "/api/threads/measured/lease",
  );
  const before = lease.instance.metrics.processes;
  // From here on, requests for the lease get no answer.
  await page.route("**/lease", (route) => route.abort());
  // Many more than the helper processes of the shell, any number of which may have been counted before.
  await type(page, "for i in $(seq 20); do sleep 600 & done");
  await until("more processes", async () => (await processes()) >= before + 12);
  await type(page, "kill $(jobs -p); wait");
  await until("fewer", async () => (await processes()) <= before + 6);
  await close();
});

test("the palette opens a terminal, changes the theme and returns the focus", async () => {
  const { page, close } = await at("palette");
  const choose = async (words: string): Promise<void> => {
    await page.keyboard.press("Control+k");
    await page.getByRole("dialog", { name: "Command palette" }).waitFor();
    await page.keyboard.type(words);
    await page.keyboard.press("Enter");
  };
  await choose("theme dark");
  await until("a dark page", () => page.evaluate(() => document.documentElement.classList.contains("dark")));
  await choose("new terminal");
  await until("a second terminal, shown", async () =>
    (await page.locator(".terminal-tab").nth(1).getAttribute("class"))?.includes("on"),
  );
  await connected(page);
  await page.keyboard.press("Control+k");
  await page.getByRole("dialog").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await page.keyboard.type("echo focus-$((1+1))\n");
  await shows(page, /^focus-2$/m);
  await close();
});
