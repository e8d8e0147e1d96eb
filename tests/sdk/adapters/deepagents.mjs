// The adapter for deepagents in JavaScript, against a server that is already running. Our SDK must have been built.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { printed } from "./example.mjs";

const require = createRequire(`${process.env.SDK_DIR}/`);
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { BaseSandbox } = await load("deepagents");
const { Stead } = await import("../../../sdk/typescript/dist/index.js");
const { steadSandbox } = await import("../../../sdk/typescript/dist/adapters/deepagents.js");

const { E2B_API_KEY: token, E2B_API_URL: url } = process.env;
const client = new Stead({ url, token });
const SteadSandbox = steadSandbox(BaseSandbox);
const bytes = (text) => new TextEncoder().encode(text);
let sandbox;
let backend;
before(async () => {
  sandbox = await client.sandboxes.create();
  backend = new SteadSandbox(sandbox);
});
after(() => sandbox.delete());

test("commands share one shell, and files are read while it is busy", async () => {
  assert.equal(backend.id, sandbox.id);
  await backend.execute("cd /usr; export COLOR=red");
  const seen = await backend.execute("echo $COLOR in $PWD; echo oops >&2; (exit 3)");
  assert.deepEqual(seen, { output: "red in /usr\noops\n", exitCode: 3, truncated: false });
  await backend.uploadFiles([["/workspace/note", bytes("text\n")]]);
  const busy = backend.execute("while [ ! -e /workspace/go ]; do sleep 0.1; done");
  assert.match((await backend.read("/workspace/note")).content, /text/);
  await backend.uploadFiles([["/workspace/go", bytes("")]]);
  assert.equal((await busy).exitCode, 0);
});

test("files are uploaded and downloaded, each with its own error", async () => {
  await backend.execute("mkdir -p /tmp/dir; echo secret > /tmp/locked; chmod 000 /tmp/locked");
  const uploads = await backend.uploadFiles([
    ["/tmp/new/a", new Uint8Array([0, 255])],
    ["relative", bytes("x")],
    ["/tmp/dir", bytes("x")],
    ["/tmp/locked", bytes("x")],
  ]);
  assert.deepEqual(
    uploads.map(({ error }) => error),
    [null, "invalid_path", "is_directory", "permission_denied"],
  );
  const downloads = await backend.downloadFiles(["/tmp/new/a", "/tmp/none", "/tmp/dir", "/tmp/locked"]);
  assert.deepEqual([...downloads[0].content], [0, 255]);
  assert.deepEqual(
    downloads.map(({ error }) => error),
    [null, "file_not_found", "is_directory", "permission_denied"],
  );
});

test("the operations of deepagents work", async () => {
  assert.equal((await backend.write("/workspace/f.txt", "one\ntwo\n")).error, undefined);
  assert.equal((await backend.edit("/workspace/f.txt", "two", "three")).error, undefined);
  assert.equal((await backend.downloadFiles(["/workspace/f.txt"]))[0].content.length, 10);
  assert.equal((await backend.grep("three", "/workspace")).matches[0].line, 2);
  assert.equal((await backend.glob("*.txt", "/workspace")).files.length, 1);
  assert.ok((await backend.ls("/workspace")).files.some(({ path }) => path.endsWith("f.txt")));
});

test("the example works in a sandbox", () => {
  assert.equal(printed("deep_agent.mjs"), "the shell printed: 10\nThe last one is ten.\n");
});
