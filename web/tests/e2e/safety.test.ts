import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import {
  complaints,
  connected,
  fromDist,
  launch,
  person,
  shows,
  stage,
  threadPage,
  type,
  until,
} from "./harness.ts";

const scene = stage();
const { server } = scene;

test("the policy allows no inline and no evaluated code, and the page needs none", async () => {
  await server.thread("strict");
  const { context, page } = await person(scene.browser, server);
  const answer = await page.goto(threadPage(server, "strict"));
  const policy = answer?.headers()["content-security-policy"] ?? "";
  expect(policy).toContain("default-src 'none'");
  expect(policy).not.toMatch(/unsafe|data:.*script|\*/);
  await connected(page);
  await type(page, "echo drawn-$((1+1))");
  await shows(page, /^drawn-2$/m);
  expect(complaints.get(page)).toEqual([]);
  // In the main world of the page, like injected code: the policy does not apply to the world of the debugger.
  await page.evaluate(() => {
    const script = document.createElement("script");
    script.textContent = "document.title = 'broken'";
    document.body.append(script);
    const button = document.createElement("button");
    button.setAttribute("onclick", "document.title = 'broken'");
    document.body.append(button);
    button.click();
    const picture = document.createElement("img");
    picture.src = "https://example.org/leaked";
    document.body.append(picture);
  });
  expect(await page.title()).toBe("strict · Stead");
  for (const refused of ["inline script", "inline event handler", "example.org"]) {
    await until(`a complaint of ${refused}`, async () => complaints.get(page)!.join("\n").includes(refused));
  }
  await context.close();
});

test("no secret is in a URL, in browser storage or in the log", async () => {
  await server.thread("quiet");
  const { context, page } = await person(scene.browser, server);
  const addresses: string[] = [];
  page.on("request", (request) => addresses.push(request.url()));
  page.on("websocket", (socket) => addresses.push(socket.url()));
  for (const view of [
    "now",
    "inbox",
    "sandboxes",
    "threads/quiet/files",
    "threads",
    "threads/quiet",
    "threads/quiet/timeline",
    "threads/quiet/replay",
    "projects",
    "leases",
    "metrics",
    "settings",
  ]) {
    await page.goto(`${server.url}/ui/${view}`);
    await page.getByRole("heading", { level: 1 }).waitFor();
  }
  await page.goto(threadPage(server, "quiet"));
  await connected(page);
  const token = readFileSync(join(server.home, "token"), "utf8").trim();
  const secrets = [token, ...(await context.cookies()).map((cookie) => cookie.value)];
  expect(secrets.length).toBe(2);
  const kept = await page.evaluate(async () => {
    const databases = (await indexedDB.databases()).length;
    const caches_ = "caches" in window ? (await caches.keys()).length : 0;
    return {
      databases,
      caches: caches_,
      text: JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, location.href]),
    };
  });
  expect(kept).toMatchObject({ databases: 0, caches: 0 });
  const files = readdirSync(server.home, { recursive: true, withFileTypes: true }).filter(
    (file) => file.isFile() && file.name !== "token",
  );
  for (const secret of secrets) {
    expect(addresses.filter((address) => address.includes(secret))).toEqual([]);
    expect(kept.text).not.toContain(secret);
    expect(server.printed).not.toContain(secret);
    // The server stores hashes only.
    expect(
      files
        .filter((file) => readFileSync(join(file.parentPath, file.name)).includes(secret))
        .map((file) => file.name),
    ).toEqual([]);
  }
  expect(addresses.length).toBeGreaterThan(20);
  await context.close();
});

/** The maximum number of bytes on the wire until a page shows its terminal. */
const MAX_LOAD_BYTES = 300_000;

test.skipIf(fromDist)("a whole visit costs at most 300 KB", async () => {
  await server.exec("small", "echo standing");
  const able = await launch(true);
  try {
    const { context, page } = await person(able, server);
    const devtools = await context.newCDPSession(page);
    await devtools.send("Network.enable");
    await devtools.send("Network.setCacheDisabled", { cacheDisabled: true });
    let bytes = 0;
    devtools.on("Network.loadingFinished", (done) => {
      bytes += done.encodedDataLength;
    });
    devtools.on("Network.webSocketFrameReceived", ({ response }) => {
      bytes += response.payloadData.length;
    });
    await page.goto(threadPage(server, "small"));
    await connected(page);
    // Modules that are loaded on demand count, too.
    await page.locator(".xterm-screen canvas").first().waitFor();
    await page.keyboard.press("Control+Shift+F");
    await page.getByLabel("Search the scrollback").fill("standing");
    for (const part of ["addon-webgl", "addon-search"]) {
      await page.waitForFunction(
        (name) => performance.getEntriesByType("resource").some((one) => one.name.includes(name)),
        part,
      );
    }
    console.log(`visit: ${Math.round(bytes / 1000)} KB over the wire`);
    expect(bytes).toBeLessThan(MAX_LOAD_BYTES);
    expect(bytes).toBeGreaterThan(100_000);
  } finally {
    await able.close();
  }
});

test("a terminal is shown within a second", async () => {
  await server.exec("fast", "echo standing-$((1+1))");
  const times: number[] = [];
  for (let visit = 0; visit < 5; visit += 1) {
    const { context, page } = await person(scene.browser, server);
    await page.addInitScript(() => {
      new MutationObserver((_, observer) => {
        if (!document.querySelector(".terminal .xterm-rows")?.textContent?.includes("standing-2")) return;
        observer.disconnect();
        (window as unknown as { stood: number }).stood = performance.now();
      }).observe(document, { subtree: true, childList: true, characterData: true });
    });
    await page.goto(threadPage(server, "fast"));
    const stood = await page.waitForFunction(() => (window as unknown as { stood?: number }).stood);
    times.push((await stood.jsonValue()) as number);
    await context.close();
  }
  times.sort((a, b) => a - b);
  console.log(`visit: the terminal stands after ${times.map((time) => Math.round(time)).join(", ")} ms`);
  // The best of five, because other programs of the machine may delay some.
  expect(times[0]).toBeLessThan(1000);
});
