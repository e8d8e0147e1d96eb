// Writes src/schema.ts from the API document of the server: `node scripts/generate.mjs [--check]`.
//
// The document comes from the binary at STEAD_BIN, which is started in a temporary home.

import { readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import openapiTS, { astToString } from "openapi-typescript";
import { startServer } from "../test/server.mjs";

const TARGET = fileURLToPath(new URL("../src/schema.ts", import.meta.url));

const server = await startServer();
let document;
try {
  const response = await fetch(`${server.url}/openapi.json`, {
    headers: { authorization: `Bearer ${server.token}` },
  });
  document = await response.json();
} finally {
  await server.close();
}
const ast = await openapiTS(document, { emptyObjectsUnknown: true });
const text = `/** Generated from the server's /openapi.json by \`npm run generate\`. Do not edit. */\n\n${astToString(ast)}`;
if (process.argv.includes("--check")) {
  if ((await readFile(TARGET, "utf8")) !== text) {
    console.error("src/schema.ts differs from the server's API document; run `npm run generate`");
    process.exit(1);
  }
} else {
  await writeFile(TARGET, text);
}
