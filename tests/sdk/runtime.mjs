// Our TypeScript SDK in Deno or Bun, whichever is installed in SDK_DIR. The SDK must have been built.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { test } from "node:test";
import { promisify } from "node:util";

const { SDK_DIR, E2B_API_KEY: token, E2B_API_URL: url } = process.env;
const sdk = new URL("../../sdk/typescript/", import.meta.url);
const name = ["deno", "bun"].find((name) => existsSync(`${SDK_DIR}/node_modules/.bin/${name}`));

test(`the SDK works in ${name}`, async () => {
  const module = `import { smoke } from "${sdk}test/smoke.mjs"; import * as sdk from "${sdk}dist/index.js";
    console.log(await smoke(sdk, ${JSON.stringify({ url, token })}));`;
  const source = `data:text/javascript,${encodeURIComponent(module)}`;
  const options = name === "deno" ? ["run", "--allow-net", "--allow-read", source] : ["-e", module];
  const { stdout } = await promisify(execFile)(`${SDK_DIR}/node_modules/.bin/${name}`, options);
  assert.equal(stdout, "smoke passed\n");
});
