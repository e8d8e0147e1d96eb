// The adapter for the Vercel AI SDK, against a server that is already running. Our SDK must have been built.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { printed } from "./example.mjs";

const { Stead } = await import("../../../sdk/typescript/dist/index.js");
const { SandboxSession } = await import("../../../sdk/typescript/dist/adapters/ai.js");

const { E2B_API_KEY: token, E2B_API_URL: url } = process.env;
const client = new Stead({ url, token });
let sandbox;
let session;
before(async () => {
  sandbox = await client.sandboxes.create();
  session = new SandboxSession(sandbox);
});
after(() => sandbox.delete());

const bytes = (text) => new TextEncoder().encode(text);
const textOf = async (stream) => new Response(stream).text();

test("commands share nothing but files", async () => {
  await session.run({ command: "cd /usr; export A=1" });
  const run = { command: "echo $A$B in $PWD; echo oops >&2; exit 3", env: { B: "b" }, workingDirectory: "/tmp" };
  assert.deepEqual(await session.run(run), { exitCode: 3, stdout: "b in /tmp\n", stderr: "oops\n" });
  assert.equal((await session.run({ command: "pwd", workingDirectory: "/none" })).exitCode, 1);
  const long = `printf %s ${"x".repeat(100_000)} | wc -c`;
  assert.equal((await session.run({ command: long })).stdout, "100000\n");
  const together = await Promise.all([1, 2, 3].map((n) => session.run({ command: `sleep 0.3; echo ${n}` })));
  assert.deepEqual(
    together.map(({ stdout }) => stdout),
    ["1\n", "2\n", "3\n"],
  );
});

test("aborting ends a command", async () => {
  const abort = new AbortController();
  const run = session.run({ command: "echo $$ > pid; exec sleep 600", abortSignal: abort.signal });
  while (!(await session.readTextFile({ path: "pid" }))) await new Promise((done) => setTimeout(done, 20));
  abort.abort();
  await assert.rejects(run, { name: "AbortError" });
  const end = Date.now() + 30_000;
  while ((await session.run({ command: "kill -0 $(cat pid)" })).exitCode === 0)
    assert.ok(Date.now() < end, "the command still runs");
});

test("a process is written to, read, waited for and killed", async () => {
  const cat = await session.spawn({ command: "cat; echo end >&2; exit 4", stdin: true });
  const writer = cat.stdin.getWriter();
  await writer.write(bytes("one\n"));
  await writer.write(bytes("two\n"));
  await writer.close();
  const output = await Promise.all([textOf(cat.stdout), textOf(cat.stderr), cat.wait()]);
  assert.deepEqual(output, ["one\ntwo\n", "end\n", { exitCode: 4 }]);
  const sleeping = await session.spawn({ command: "sleep 600" });
  assert.equal("stdin" in sleeping, false);
  await sleeping.kill();
  await sleeping.kill();
  assert.notEqual((await sleeping.wait()).exitCode, 0);
});

test("files", async () => {
  await session.writeTextFile({ path: "a/b.txt", content: "1\n2\n3\n" });
  assert.equal(await session.readTextFile({ path: "/workspace/a/b.txt", startLine: 2, endLine: 9 }), "2\n3\n");
  await session.writeBinaryFile({ path: "/tmp/new/c", content: new Uint8Array([0, 255]) });
  assert.deepEqual([...(await session.readBinaryFile({ path: "/tmp/new/c" }))], [0, 255]);
  await session.writeFile({ path: "d", content: new Blob(["streamed"]).stream() });
  assert.equal(await textOf(await session.readFile({ path: "d" })), "streamed");
  await session.run({ command: "ln -s a link; ln -s none dangling" });
  assert.deepEqual(await session.stat({ path: "d" }).then(({ type, size }) => [type, size]), ["file", 8]);
  assert.equal((await session.stat({ path: "link" })).type, "directory");
  assert.equal(await session.stat({ path: "dangling" }), null);
  const entries = (await session.listDirectory({ path: "." })).filter(({ name }) => /^(a|d|link)$/.test(name));
  assert.deepEqual(entries.map(({ name, type }) => `${name} ${type}`).sort(), [
    "a directory",
    "d file",
    "link symlink",
  ]);
  assert.equal(await session.deleteFile({ path: "d" }), true);
  assert.equal(await session.deleteFile({ path: "d" }), false);
  await assert.rejects(session.deleteFile({ path: "a" }));
  await assert.rejects(session.writeTextFile({ path: "a", content: "" }));
  await assert.rejects(session.listDirectory({ path: "a/b.txt" }));
  for (const read of ["readFile", "readBinaryFile", "readTextFile", "listDirectory"])
    assert.equal(await session[read]({ path: "none" }), null);
});

test("the example works in a sandbox", () => {
  assert.equal(printed("vercel_agent.mjs"), "the tool printed: 10\nThe last one is ten.\n");
});
