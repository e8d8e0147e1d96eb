import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { test, withServer } from "./harness.js";

const PACKAGE = new URL("../", import.meta.url);
const PLAYWRIGHT = fileURLToPath(new URL("../../web/node_modules/playwright-core/index.mjs", PACKAGE));
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const missing = [PLAYWRIGHT, CHROMIUM].filter((path) => !existsSync(path));

const setup = withServer();

test("the core works in a page of the server", {
  skip: missing.length > 0 && `without ${missing}`,
}, async () => {
  const { chromium } = await import(PLAYWRIGHT);
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
  try {
    const page = await browser.newPage();
    await page.route(
      "**/sdk/**",
      async (route: { request(): { url(): string }; fulfill(answer: object): unknown }) => {
        const name = new URL(route.request().url()).pathname.slice("/sdk/".length);
        const body = await readFile(new URL(name, PACKAGE), "utf8");
        await route.fulfill({ body, contentType: "text/javascript" });
      },
    );
    const { url } = await setup.client.call("post", "/api/login-links", {});
    await page.goto(url);
    const run = `(async () => {
      const [sdk, { smoke }] = await Promise.all([import("/sdk/dist/index.js"), import("/sdk/test/smoke.mjs")]);
      return smoke(sdk, { url: location.origin });
    })()`;
    assert.equal(await page.evaluate(run), "smoke passed");
  } finally {
    await browser.close();
  }
});
