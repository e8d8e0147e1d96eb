/** Records half a minute of the real app for the README: an agent works, asks a person, and continues in its terminal. */

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Browser, Locator, Page } from "playwright-core";
import { afterAll, beforeAll, test } from "vitest";
import { connected, launch, person, Server, shows, threadPage, until } from "../e2e/harness.ts";

const TARGET = join(import.meta.dirname, "../../../docs/screenshots/recording.webp");
const SIZE = { width: 1120, height: 720 };
const LAST_FRAME_MS = 3000;
/** The minimum time between frames; frames in between are left out. */
const MIN_FRAME_MS = 80;

const server = new Server();
let browser: Browser;

/** Programs of the scene. They run for as long as a viewer needs to read their output. */
const FILES: Record<string, string> = {
  test: `for name in parses_dates rejects_bad_input rounds_totals keeps_order survives_restart prints_invoices
do sleep 0.5; printf '\\033[32m✓\\033[0m %s\\n' $name; done
printf '\\n\\033[1;32m6 passed\\033[0m\\n'`,
  login: `read -rs -p 'One-time code: ' code; echo; sleep 0.6
printf '\\033[32mLogged in as ada.\\033[0m\\n'; touch .logged-in`,
  publish: `if ! [ -e .logged-in ]; then sleep 0.5; printf '\\033[31mNot logged in to the registry.\\033[0m\\n'; exit 1; fi
for part in 20 40 60 80 100; do printf '\\rUploading billing-1.4.0.tar.gz … %3d %%' $part; sleep 0.4; done
printf '\\n\\033[1;32mPublished billing 1.4.0\\033[0m\\n'`,
};

beforeAll(async () => {
  await server.start();
  browser = await launch();
});
afterAll(async () => {
  await browser?.close();
  await server.clear();
});

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

interface Frame {
  png: Buffer;
  at: number;
}

/** Collects a frame whenever the page changes. */
async function record(page: Page): Promise<{ stop(): Promise<Frame[]> }> {
  const frames: Frame[] = [];
  const session = await page.context().newCDPSession(page);
  session.on("Page.screencastFrame", ({ data, metadata, sessionId }) => {
    frames.push({ png: Buffer.from(data, "base64"), at: (metadata.timestamp ?? 0) * 1000 });
    session.send("Page.screencastFrameAck", { sessionId }).catch(() => {});
  });
  await session.send("Page.startScreencast", { format: "png" });
  return {
    async stop() {
      await session.send("Page.stopScreencast");
      return frames;
    },
  };
}

/** The frames that differ from their predecessor, each with its duration. */
function timed(frames: Frame[]): { png: Buffer; ms: number }[] {
  const kept: Frame[] = [];
  for (const frame of frames) {
    const last = kept.at(-1);
    if (last?.png.equals(frame.png)) continue;
    // Of two frames in quick succession, the later one is complete.
    if (last && frame.at - last.at < MIN_FRAME_MS) kept[kept.length - 1] = { ...frame, at: last.at };
    else kept.push(frame);
  }
  return kept.map(({ png, at }, nth) => ({
    png,
    ms: Math.round((kept[nth + 1]?.at ?? at + LAST_FRAME_MS) - at),
  }));
}

/** Writes an animation with `img2webp`, which stores only what changes from frame to frame. */
function write(frames: Frame[]): void {
  const folder = mkdtempSync(join(tmpdir(), "stead-recording-"));
  try {
    const words = timed(frames).flatMap(({ png, ms }, nth) => {
      const file = join(folder, `${String(nth).padStart(5, "0")}.png`);
      writeFileSync(file, png);
      return ["-d", String(ms), file];
    });
    const list = join(folder, "arguments");
    writeFileSync(list, ["-loop", "0", "-mixed", "-m", "4", "-q", "80", ...words, "-o", TARGET].join("\n"));
    execFileSync("img2webp", [list], { stdio: ["ignore", "ignore", "inherit"] });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Draws a pointer in the page, because the recording does not contain the real one. */
async function addPointer(page: Page): Promise<void> {
  await page.evaluate(() => {
    const pointer = document.createElement("div");
    pointer.id = "pointer";
    Object.assign(pointer.style, {
      position: "fixed",
      left: "0",
      top: "0",
      width: "16px",
      height: "16px",
      borderRadius: "50%",
      background: "rgba(255, 196, 0, 0.85)",
      border: "2px solid rgba(0, 0, 0, 0.6)",
      pointerEvents: "none",
      zIndex: "10000",
      transition: "transform 0.5s ease",
      transform: "translate(700px, 420px)",
    });
    document.body.append(pointer);
  });
}

async function click(page: Page, target: Locator): Promise<void> {
  const box = await target.boundingBox();
  if (!box) throw new Error("the target of the pointer is not visible");
  const [x, y] = [box.x + box.width / 2 - 8, box.y + box.height / 2 - 8];
  await page.evaluate(
    ([left, top]) => {
      const pointer = document.getElementById("pointer");
      if (pointer) pointer.style.transform = `translate(${left}px, ${top}px)`;
    },
    [x, y],
  );
  await pause(900);
  await target.click();
}

const exec = (command: string): Promise<unknown> =>
  server.call("POST", "/api/threads/billing-release/exec", { command });

test("an agent works, a person takes the keyboard and gives it back", async () => {
  const say = (role: string, content: string): Promise<unknown> =>
    server.call("POST", "/api/threads/billing-release/messages", { role, content });
  await say("user", "Please release billing 1.4.0.");
  const folder = join(server.home, "billing");
  mkdirSync(folder);
  for (const [name, text] of Object.entries(FILES)) {
    writeFileSync(join(folder, name), `#!/bin/bash\n${text}\n`, { mode: 0o755 });
  }
  // A prompt without the directory of the test.
  const env = { HOME: folder, PROMPT_COMMAND: "PS1='billing \\$ '" };
  await server.thread("billing-release", { cwd: folder, env });
  const { context, page } = await person(browser, server, { viewport: SIZE, colorScheme: "dark" });
  await page.goto(threadPage(server, "billing-release"));
  await connected(page);
  await page.getByRole("button", { name: "Release control" }).click();
  await page.locator(".terminal-head").getByText("View only").waitFor();
  await addPointer(page);
  const recording = await record(page);
  await pause(1500);
  await exec("./test");
  await pause(1200);
  await exec("./publish");
  await say("assistant", "The registry asks for a one-time code. That is for a person.");
  const { terminal_id } = await server.call<{ terminal_id: string }>(
    "GET",
    "/api/threads/billing-release/terminal",
  );
  const handoff = await server.call<{ handoff_id: string }>(
    "POST",
    `/api/terminals/${terminal_id}/handoffs`,
    {
      kind: "input",
      reason: "Please log in to the registry with ./login. I may not see your one-time code.",
    },
  );
  const answered = server.call("GET", `/api/handoffs/${handoff.handoff_id}?wait_ms=60000`);
  const card = page.locator(`[data-handoff="${handoff.handoff_id}"]`);
  await card.waitFor();
  await pause(3500);
  await click(page, card.getByRole("button", { name: "Take control" }));
  await page.locator(".terminal-head").getByText("You have control").waitFor();
  await pause(800);
  await page.keyboard.type("./login\n", { delay: 90 });
  await shows(page, "One-time code:");
  await pause(500);
  await page.keyboard.type("493021\n", { delay: 110 });
  await shows(page, "Logged in as ada.");
  await pause(900);
  await card.getByLabel("Note to the agent").focus();
  await page.keyboard.type("Logged in.", { delay: 60 });
  await click(page, card.getByRole("button", { name: "Answer and release control" }));
  await answered;
  await card.waitFor({ state: "detached" });
  await pause(1200);
  await exec("./publish");
  await until("the end", () => shows(page, "Published billing 1.4.0"));
  await page.locator(".toast").waitFor({ state: "detached" });
  await pause(1000);
  write(await recording.stop());
  await context.close();
});
