import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { connected, person, shows, stage, threadPage, type, until, wholeText } from "./harness.ts";

const scene = stage();
const { server } = scene;

const SENTENCES = [
  "“It’s a dash — and an ellipsis …” – she said, ‘quietly’ • once",
  "他说：“这是一个测试。”然后、他走了。【完】《书名》、再见。",
  "‘Naïve café’ — “façade”… † ‡ ‰ ′ ″ ‹ › — ’tis “so” – ‘thus’",
  "終わり。「はい」、と言った。〜々〆〇〈〉「」『』【】、。",
];

/** Returns numbered lines of at least this many bytes. */
function text(bytes: number): string {
  const lines: string[] = [];
  for (let length = 0; length < bytes; ) {
    const line = `${lines.length} ${SENTENCES[lines.length % SENTENCES.length]}`;
    lines.push(line);
    length += Buffer.byteLength(line) + 1;
  }
  return lines.join("\n");
}

test("300 KB of typographic English and Chinese arrive without a wrong character", async () => {
  await server.thread("typography");
  const { context, page } = await person(scene.browser, server);
  await page.goto(threadPage(server, "typography"));
  await connected(page);
  const printed = text(300_000);
  const file = join(server.home, "typography.txt");
  writeFileSync(file, `${printed}\n`);
  await type(page, `clear; cat ${file}; echo all-$((1+1))`);
  await shows(page, /^all-2$/m);
  const seen = await wholeText(page);
  const from = seen.indexOf(printed.slice(0, printed.indexOf("\n")));
  expect(seen.slice(from, from + printed.length).split("\n")).toEqual(printed.split("\n"));
  await context.close();
});

test("output that is fetched in parts has no wrong character", async () => {
  const file = join(server.home, "parts.txt");
  const printed = text(150_000);
  writeFileSync(file, printed);
  await server.exec("parts", `cat ${file}`);
  const { context, page } = await person(scene.browser, server);
  await page.goto(threadPage(server, "parts", "timeline"));
  const entry = page.locator(".entry.command").first();
  await entry.locator("summary").click();
  const output = entry.locator(".output.stdout");
  const more = output.getByRole("button", { name: /Show more/ });
  for (let part = 1; part <= 2; part += 1) {
    await more.click();
    await until(`part ${part + 1}`, async () => {
      const length = Buffer.byteLength(await output.locator("pre").innerText());
      return length > part * 65_536 + 1;
    });
  }
  await more.waitFor({ state: "detached" });
  expect((await output.locator("pre").textContent())?.split("\n")).toEqual(printed.split("\n"));
  await context.close();
});

/** The longest task of the page in milliseconds since `observe` was called. */
async function observe(page: Page): Promise<() => Promise<number>> {
  await page.evaluate(() => {
    const kept = window as unknown as { longest: number };
    kept.longest = 0;
    new PerformanceObserver((entries) => {
      for (const entry of entries.getEntries()) kept.longest = Math.max(kept.longest, entry.duration);
    }).observe({ type: "longtask" });
  });
  return () => page.evaluate(() => (window as unknown as { longest: number }).longest);
}

test("no repeat count of a control sequence blocks the page", async () => {
  await server.thread("counts");
  const { context, page } = await person(scene.browser, server);
  await page.goto(threadPage(server, "counts"));
  await connected(page);
  await type(page, "seq 1 20000; echo filled-$((1+1))");
  await shows(page, /^filled-2$/m);
  const hostile = [..."STLMIZb"].map((final) => `\\033[3000000${final}`).join("x");
  const times: number[] = [];
  for (let round = 1; round <= 5; round += 1) {
    const longest = await observe(page);
    await type(
      page,
      `printf '${hostile}'; printf '\\033[50S%.0s' $(seq 1 2000); clear; echo round-$((${round}+0))`,
    );
    await shows(page, new RegExp(`^round-${round}$`, "m"));
    await until("a frame after it", () => page.evaluate(() => new Promise(requestAnimationFrame)));
    times.push(await longest());
  }
  console.log(`counts: the longest task took ${times.map((time) => Math.round(time)).join(", ")} ms`);
  // The best of five, because other programs of the machine may delay some.
  expect(Math.min(...times)).toBeLessThan(100);
  await context.close();
});
