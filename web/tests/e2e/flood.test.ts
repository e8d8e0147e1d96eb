import type { CDPSession, Page } from "playwright-core";
import { expect, test } from "vitest";
import { connected, person, shows, stage, threadPage, type, until } from "./harness.ts";

const scene = stage();
const { server } = scene;

/** Returns the heap size of the page in bytes, after a garbage collection. */
async function heap(page: Page, devtools: CDPSession): Promise<number> {
  await devtools.send("HeapProfiler.collectGarbage");
  return page.evaluate(
    () => (performance as unknown as { memory: { usedJSHeapSize: number } }).memory.usedJSHeapSize,
  );
}

/**
 * Returns for each key press, in milliseconds, how long the page took to handle it, and until its letter was
 * on the screen.
 */
interface Echo {
  handled: number;
  shown: number;
}

async function echoes(page: Page, text: string): Promise<Echo[]> {
  await page.evaluate(() => {
    const rows = document.querySelector(".terminal .xterm-rows")!;
    const length = (): number => rows.textContent!.replace(/\s/gu, "").length;
    const each: Echo[] = [];
    let began: { at: number; handled: number; length: number } | null = null;
    // Counted from the time stamp of the key event, not from its handler.
    const pressed = (event: KeyboardEvent): void => {
      began = { at: event.timeStamp, handled: performance.now() - event.timeStamp, length: length() };
    };
    document.addEventListener("keydown", pressed, { capture: true });
    new MutationObserver(() => {
      if (!began || length() <= began.length) return;
      each.push({ handled: began.handled, shown: performance.now() - began.at });
      began = null;
    }).observe(rows, { subtree: true, childList: true, characterData: true });
    (window as unknown as { echoes: Echo[] }).echoes = each;
  });
  const seen = (): Promise<Echo[]> => page.evaluate(() => (window as unknown as { echoes: Echo[] }).echoes);
  for (let n = 1; n <= text.length; n += 1) {
    await page.keyboard.type(text[n - 1]!);
    await until(`the echo of letter ${n}`, async () => (await seen()).length === n, 30_000);
  }
  return seen();
}

test("ten terminals with floods of output leave the page usable and its memory bounded", async () => {
  const { context, page } = await person(scene.browser, server, { viewport: { width: 1600, height: 1200 } });
  const devtools = await context.newCDPSession(page);
  await server.thread("flood");
  const flooding: string[] = [];
  for (let n = 0; n < 10; n += 1) {
    const made = await server.call<{ terminal_id: string }>("POST", "/api/threads/flood/terminals", {
      cmd: ["sh", "-c", "read go; while :; do seq 1 2000; done"],
    });
    flooding.push(made.terminal_id);
  }
  await page.goto(threadPage(server, "flood"));
  await connected(page);
  for (let shown = 2; shown <= 11; shown += 1) {
    await page
      .getByRole("button", { name: /side by side/ })
      .first()
      .click();
    await until(`${shown} terminals`, async () => (await page.locator("section.terminal").count()) === shown);
  }
  // A program that only echoes, so that the round trip is measured.
  await type(page, "clear; echo ready-$((1+1)); cat");
  await shows(page, /^ready-2$/m);
  const quiet = await heap(page, devtools);
  for (const id of flooding) await server.call("POST", `/api/terminals/${id}/input`, { data: "go\r" });
  const flooded = (least: number): Promise<unknown> =>
    until(
      `${least} bytes of each flood`,
      async () => {
        const each = await Promise.all(
          flooding.map((id) => server.call<{ offset: number }>("GET", `/api/terminals/${id}`)),
        );
        return each.every((terminal) => terminal.offset > least);
      },
      90_000,
    );
  await flooded(1 << 20);
  const early = await heap(page, devtools);
  await page.locator(".terminal .xterm-helper-textarea").first().focus();
  const each = await echoes(page, "abcdefghijklmno");
  // Far more output than the page and the server may keep.
  await flooded(4 << 20);
  const late = await heap(page, devtools);
  const middle = (values: number[]): number => values.sort((a, b) => a - b)[values.length >> 1]!;
  const handled = middle(each.map((one) => one.handled));
  const shown = middle(each.map((one) => one.shown));
  const megabytes = (bytes: number): number => Math.round(bytes / 1e6);
  console.log(
    `flood: a key is handled after ${Math.round(handled)} ms and shown after ${Math.round(shown)} ms;`,
    `heap ${[quiet, early, late].map(megabytes).join(", ")} MB`,
  );
  expect(handled).toBeLessThan(250);
  // The floods use all CPUs of the machine, which the round trip shares.
  expect(shown).toBeLessThan(3000);
  // Ten scrollbacks of 10,000 lines take about 80 MB.
  expect(late).toBeLessThan(250e6);
  await context.close();
}, 240_000);
