import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { after } from "node:test";
import { ConnectionError, Stead, type Thread } from "../dist/index.js";
import { collect, test, withServer } from "./harness.js";
import { CuttingProxy, randomNumbers } from "./proxy.js";

const MIB = 1 << 20;

/** Half of the connections are cut within the first number of bytes, half within the second. */
let cutBytes = [0, 0];

const random = randomNumbers(18);
let proxy: CuttingProxy;
const setup = withServer("local", async () => {
  const nextCut = (): number => Math.ceil(random() * cutBytes[random() < 0.5 ? 0 : 1]!);
  proxy = await CuttingProxy.start(() => setup.server.url, nextCut);
  return ["--set", `names=127.0.0.1:${proxy.port}`];
});
after(() => proxy.close());

/** A client whose connections are cut at random bytes. */
function cutClient(...bytes: [number, number]): Stead {
  cutBytes = bytes;
  proxy.disconnect();
  return new Stead({ url: `http://127.0.0.1:${proxy.port}`, token: setup.server.token });
}

/**
 * Writes a random file to standard output, as fast as possible, and its digest to standard error. Checks that each byte
 * arrives once.
 */
async function streamOnce(thread: Thread, mib: number, progress: (received: number) => void): Promise<void> {
  const script = `head -c ${mib}M /dev/urandom > random; cat random; sha256sum < random >&2; rm random`;
  const digest = createHash("sha256");
  let [received, stderr] = [0, ""];
  for await (const event of thread.execStream(script)) {
    if (event.type === "stderr") stderr += event.text;
    if (event.type === "gap") assert.fail(`lost ${event.stream} ${event.from} to ${event.to}`);
    if (event.type === "exit") assert.equal(event.result.exitCode, 0);
    if (event.type === "stdout") {
      assert.equal(event.offset, received);
      received += event.data.length;
      digest.update(event.data);
      progress(received);
    }
  }
  assert.equal(received, mib * MIB);
  assert.equal(stderr, `${digest.digest("hex")}  -\n`);
}

test("100 MiB arrive once while the server is killed five times", async () => {
  const [size, kills] = [100, 5];
  let killed = 0;
  let restarting: Promise<void> | undefined;
  const restart = async (): Promise<void> => {
    await setup.server.kill();
    await setup.server.start();
    restarting = undefined;
  };
  await streamOnce(setup.thread(), size, (received) => {
    if (restarting || killed === kills || received < ((killed + 1) * size * MIB) / (kills + 1)) return;
    killed += 1;
    restarting = restart();
  });
  await restarting;
  assert.equal(killed, kills);
});

test("a stream through connections that are cut at random bytes has each byte once", async () => {
  const client = cutClient(64 << 10, 4 * MIB);
  const before = proxy.cuts;
  await streamOnce(client.threads.open("cut"), 16, () => {});
  assert.ok(proxy.cuts - before > 5, `${proxy.cuts - before} cuts`);
});

test("commands through connections that are cut run once", async () => {
  const thread = cutClient(1000, 10_000).threads.open("once");
  const before = proxy.cuts;
  for (let count = 1; count <= 40; count++) {
    assert.equal((await thread.exec("echo x >> runs; wc -l < runs")).stdout, `${count}\n`);
  }
  assert.ok(proxy.cuts - before > 5, `${proxy.cuts - before} cuts`);
});

test("files through connections that are cut arrive whole", async () => {
  const { files } = cutClient(64 << 10, 16 * MIB).threads.open("once");
  const content = randomBytes(3 * MIB);
  await files.write("/workspace/big", content);
  assert.ok(content.equals(await files.read("/workspace/big")));
  const part = new Response(files.stream("/workspace/big", { offset: 5, limit: 2 * MIB }));
  assert.ok(content.subarray(5, 5 + 2 * MIB).equals(Buffer.from(await part.arrayBuffer())));
});

test("a terminal can be watched through connections that are cut", async () => {
  const thread = cutClient(1000, 64 << 10).threads.open("watched");
  await thread.exec("true");
  const terminal = await thread.terminals.default();
  const { offset } = await terminal.screen();
  await terminal.type("seq 1 20000; echo 'the ''end'\n");
  let text = "";
  for await (const event of terminal.attach({ from: offset })) {
    if (event.type === "snapshot") assert.fail("the output is still kept");
    if (event.type === "data") text += event.text;
    if (text.includes("the end")) break;
  }
  const numbers = Array.from({ length: 20_000 }, (_, index) => `${index + 1}\r\n`).join("");
  assert.ok(text.includes(numbers));
});

test("a command outlives the server, and its result does, too", async () => {
  const thread = setup.thread();
  await thread.exec("true");
  const waiting = thread.exec("sleep 1; echo still here");
  const command = await thread.start("echo queued");
  await setup.server.kill();
  await setup.server.start();
  assert.equal((await waiting).stdout, "still here\n");
  assert.equal((await command.wait()).stdout, "queued\n");
});

test("a server that stays away is reported after the deadline", async () => {
  const client = new Stead({ url: "http://127.0.0.1:9", token: "x", retryTimeoutMs: 300 });
  await assert.rejects(client.threads.list(), (error) => {
    assert.ok(error instanceof ConnectionError);
    assert.match(error.detail, /127\.0\.0\.1:9/);
    return true;
  });
  await assert.rejects(collect(client.threads.open("t").execStream("true")), ConnectionError);
});
