import assert from "node:assert/strict";
import { BusyError, CommandError, type ExecEvent, NotFoundError } from "../dist/index.js";
import { collect, test, until, withServer } from "./harness.js";

const setup = withServer();

test("a command returns its output and exit code, and the shell keeps its state", async () => {
  const thread = setup.thread();
  const first = await thread.exec("cd /tmp; export A=1; echo out; echo err >&2; (exit 3)");
  assert.equal(first.stdout, "out\n");
  assert.equal(first.stderr, "err\n");
  assert.equal(first.exitCode, 3);
  assert.equal(first.ok, false);
  assert.equal(first.changes.cwd?.to, "/tmp");
  assert.deepEqual(first.changes.env, { set: { A: "1" }, unset: [] });
  const second = await thread.exec('echo "$A in $PWD"');
  assert.equal(second.stdout, "1 in /tmp\n");
  assert.equal(second.ok, true);
});

test("stdin, env and cwd hold for one command", async () => {
  const thread = setup.thread();
  const result = await thread.exec('cat; echo "$B in $PWD"', { stdin: "in\n", env: { B: "2" }, cwd: "/" });
  assert.equal(result.stdout, "in\n2 in /\n");
  assert.equal((await thread.exec('cat; echo "[$B]"')).stdout, "[]\n");
});

test("a timeout and `check` are visible in the result", async () => {
  const thread = setup.thread();
  await thread.exec("true");
  const slow = await thread.exec("sleep 100", { timeoutMs: 1000 });
  assert.equal(slow.status, "timed_out");
  assert.equal(slow.timedOut, true);
  assert.equal(slow.exitCode, null);
  await assert.rejects(thread.exec("exit 7", { check: true }), (error) => {
    assert.ok(error instanceof CommandError);
    assert.equal(error.result.exitCode, 7);
    return true;
  });
});

test("output that is not UTF-8 keeps its bytes", async () => {
  const result = await setup.thread().exec("printf 'a\\377'");
  assert.equal(result.stdout, "a\ufffd");
  assert.equal(result.stdoutBase64, "Yf8=");
});

test("a result can have more than the default limit, and its beginning otherwise", async () => {
  const thread = setup.thread();
  const command = "seq 1 400000";
  const expected = Array.from({ length: 400_000 }, (_, index) => `${index + 1}\n`).join("");
  const whole = await thread.exec(command, { maxOutputBytes: 4 << 20 });
  assert.equal(whole.truncated, false);
  assert.equal(whole.stdout, expected);
  const head = await thread.exec(command);
  assert.equal(head.truncated, true);
  assert.equal(head.stdoutBytes, expected.length);
  assert.equal(head.stdout, expected.slice(0, 1 << 20));
});

test("a stream has the events of a command in order", async () => {
  const thread = setup.thread();
  const events = await collect(thread.execStream("echo one; echo two >&2; printf 'é'; exit 4"));
  assert.equal(events.at(0)?.type, "started");
  const last = events.at(-1);
  assert.ok(last?.type === "exit");
  assert.equal(last.result.exitCode, 4);
  assert.equal(text(events, "stdout"), "one\né");
  assert.equal(text(events, "stderr"), "two\n");
});

test("a character that is split between two writes arrives whole", async () => {
  const events = await collect(setup.thread().execStream("printf '\\303'; sleep 0.1; printf '\\251\\303'"));
  assert.equal(text(events, "stdout"), "é\ufffd");
  const bytes = events.flatMap((event) => (event.type === "stdout" ? [...event.data] : []));
  assert.deepEqual(bytes, [0xc3, 0xa9, 0xc3]);
});

test("a stream ends with the command and not with its background processes", async () => {
  const thread = setup.thread();
  const events = await collect(thread.execStream("sleep 100 & echo $!"));
  const last = events.at(-1);
  assert.ok(last?.type === "exit");
  const followed = await collect((await setup.client.commands.attach(last.result.commandId)).follow());
  assert.equal(text(followed, "stdout"), last.result.stdout);
  await thread.exec(`kill ${last.result.stdout}`);
});

test("a started command takes input and can be attached to by its id", async () => {
  const thread = setup.thread();
  const command = await thread.start("sort; echo done >&2");
  await command.writeStdin("b\n");
  await command.writeStdin(new Uint8Array([97, 10]), { eof: true });
  const attached = await setup.client.commands.attach(command.id);
  const events = await collect(attached.follow());
  assert.equal(text(events, "stdout"), "a\nb\n");
  assert.equal(text(events, "stderr"), "done\n");
  const result = await attached.wait();
  assert.equal(result.exitCode, 0);
  const chunk = await attached.output("stdout", { from: 2 });
  assert.equal(new TextDecoder().decode(chunk.data), "b\n");
  assert.equal(chunk.end, true);
  await assert.rejects(setup.client.commands.attach("cmd_unknown"), NotFoundError);
});

test("a stream can keep standard input open", async () => {
  const seen: string[] = [];
  for await (const event of setup.thread().execStream("read a; echo got $a", { openStdin: true })) {
    if (event.type === "started") await event.command.writeStdin("x\n");
    if (event.type === "stdout") seen.push(event.text);
  }
  assert.deepEqual(seen, ["got x\n"]);
});

test("a running command can be signalled and cancelled", async () => {
  const thread = setup.thread();
  const script = 'trap "echo caught; exit 5" USR1; echo ready; while :; do sleep 0.01; done';
  const trapped = await thread.start(`sh -c '${script}'`);
  await until("the trap", async () => (await trapped.output("stdout", { waitMs: 1000 })).data.length > 0);
  await trapped.signal("USR1");
  const result = await trapped.wait();
  assert.equal(result.stdout, "ready\ncaught\n");
  assert.equal(result.exitCode, 5);
  const endless = await thread.start("sleep 1000");
  await endless.cancel();
  assert.equal((await endless.wait()).status, "cancelled");
  // A command that has ended needs no cancellation.
  await endless.cancel();
});

test("a busy terminal refuses a command that does not wait", async () => {
  const thread = setup.thread();
  const first = await thread.start("sleep 1000");
  await assert.rejects(thread.exec("true", { ifBusy: "fail" }), BusyError);
  await first.cancel();
  assert.equal((await thread.exec("echo free")).stdout, "free\n");
});

test("an aborted wait leaves the command running", async () => {
  const thread = setup.thread();
  const abort = new AbortController();
  const waiting = thread.exec("echo $$ >&2; read line < /dev/tty", { signal: abort.signal });
  const terminal = await until("the thread", () => thread.terminals.default().catch(() => undefined));
  const running = await until("the command", async () =>
    (await terminal.history()).items.find((item) => item.status === "running"),
  );
  abort.abort();
  await assert.rejects(waiting, { name: "AbortError" });
  const command = await setup.client.commands.attach(running.commandId);
  assert.equal((await command.receipt()).status, "running");
  await command.cancel();
  await command.wait();
});

test("an aborted wait cancels the command on request", async () => {
  const thread = setup.thread();
  const abort = new AbortController();
  const reason = new Error("enough");
  let id = "";
  const stream = async (): Promise<void> => {
    for await (const event of thread.execStream("sleep 1000", {
      signal: abort.signal,
      cancelOnAbort: true,
    })) {
      if (event.type !== "started") continue;
      id = event.command.id;
      abort.abort(reason);
    }
  };
  await assert.rejects(stream(), reason);
  assert.equal((await (await setup.client.commands.attach(id)).wait()).status, "cancelled");
  // Also when the abort comes before the id of the command is known.
  const early = new AbortController();
  const waiting = thread.exec("sleep 1000", { signal: early.signal, cancelOnAbort: true });
  early.abort(reason);
  await assert.rejects(waiting, reason);
  const terminal = await thread.terminals.default();
  await until("no running command", async () =>
    (await terminal.history()).items.every((item) => item.status === "cancelled"),
  );
});

test("a signal that is aborted already sends nothing", async () => {
  const thread = setup.thread();
  await assert.rejects(thread.exec("true", { signal: AbortSignal.abort() }), { name: "AbortError" });
  await assert.rejects(thread.info(), NotFoundError);
});

test("the same idempotency key runs a command once", async () => {
  const thread = setup.thread();
  const options = { idempotencyKey: "once" };
  const results = await Promise.all([1, 2, 3].map(() => thread.exec("echo x >> once; cat once", options)));
  assert.deepEqual(
    results.map((result) => result.stdout),
    ["x\n", "x\n", "x\n"],
  );
});

test("many commands run at the same time, each in its own shell", async () => {
  const numbers = Array.from({ length: 24 }, (_, index) => index);
  const outputs = await Promise.all(
    numbers.map(async (number) => {
      const thread = setup.client.threads.open(`many${number % 8}`);
      return (await collect(thread.execStream(`echo ${number}`))).at(-1);
    }),
  );
  const texts = outputs.map((event) => (event?.type === "exit" ? event.result.stdout : ""));
  assert.deepEqual(
    texts,
    numbers.map((number) => `${number}\n`),
  );
});

function text(events: ExecEvent[], name: "stdout" | "stderr"): string {
  return events.map((event) => (event.type === name ? event.text : "")).join("");
}
