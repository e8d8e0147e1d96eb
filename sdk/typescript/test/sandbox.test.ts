import assert from "node:assert/strict";
import { NotFoundError } from "../dist/index.js";
import { collect, test, withServer } from "./harness.js";

const setup = withServer("auto");

test("a sandbox is created once per name, listed by label, changed and deleted", async () => {
  const { sandboxes } = setup.client;
  const sandbox = await sandboxes.create({
    name: "n",
    labels: { my_job: "1" },
    env: { MY_VAR: "v" },
    timeoutS: 600,
  });
  assert.equal((await sandboxes.create({ name: "n" })).id, sandbox.id);
  assert.equal(sandbox.latest.state, "running");
  assert.deepEqual(sandbox.latest.labels, { my_job: "1" });
  assert.equal((await sandbox.exec("cd /tmp; echo $MY_VAR")).stdout, "v\n");
  assert.equal((await collect(sandbox.execStream("pwd"))).length > 2, true);
  await sandbox.files.write("/workspace/f", "x");
  assert.equal(await sandbox.thread.files.readText("/workspace/f"), "x");
  assert.equal((await sandbox.terminals.list()).items.length, 1);
  const found = await sandboxes.list({ labels: { my_job: "1" }, states: ["running"] });
  assert.deepEqual(
    found.items.map((item) => item.id),
    [sandbox.id],
  );
  assert.deepEqual((await sandboxes.list({ labels: { my_job: "2" } })).items, []);
  assert.equal((await sandbox.update({ name: "m", onTimeout: "destroy" })).onTimeout, "destroy");
  const before = Date.parse(sandbox.latest.expiresAt!);
  assert.ok(Date.parse((await sandbox.extend(7200)).expiresAt!) > before);
  assert.equal((await sandbox.pause()).state, "paused");
  assert.equal((await sandbox.resume()).state, "running");
  const same = await sandboxes.get(sandbox.id);
  assert.equal(same.latest.name, "m");
  await sandbox.delete();
  await assert.rejects(sandbox.info(), NotFoundError);
});

test("a sandbox is forked in mid-work, suspended and copied by a snapshot", async (context) => {
  const { sandboxes } = setup.client;
  const sandbox = await sandboxes.create();
  await sandbox.exec("cd /tmp; export A=1; f() { echo from f; }; echo data > file", { check: true });
  const provider = (await setup.client.providers()).find(({ name }) => name === sandbox.latest.provider);
  if (provider?.suspend === "none") return context.skip(`${provider.name} cannot fork`);
  const fork = await sandbox.fork({ labels: { fork: "yes" } });
  await sandbox.exec("export A=2; echo changed > file");
  assert.equal((await fork.exec("echo $A $PWD; f; cat file")).stdout, "1 /tmp\nfrom f\ndata\n");
  assert.equal((await sandbox.suspend()).state, "suspended");
  assert.equal((await sandbox.exec("echo $A; cat file")).stdout, "2\nchanged\n");
  const snapshot = await sandbox.snapshot("snap");
  const copy = await sandboxes.create({ snapshot: snapshot.name });
  assert.equal((await copy.exec("cat /tmp/file")).stdout, "changed\n");
  await Promise.all([sandbox, fork, copy].map((each) => each.delete()));
});
