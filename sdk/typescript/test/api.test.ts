import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, get, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import {
  AlreadyExistsError,
  type FileEvent,
  FileTypeError,
  ForbiddenError,
  InvalidRequestError,
  NotFoundError,
  Stead,
  SteadError,
  type SteadEvent,
  type TerminalEvent,
  UnauthorizedError,
  VersionConflictError,
  WaitTimeoutError,
} from "../dist/index.js";
import { collect, test, until, withServer } from "./harness.js";

const setup = withServer();

test("files are written, read, listed, searched, moved and removed", async () => {
  const thread = setup.thread();
  await thread.exec("true");
  const { files } = thread;
  const written = await files.write("/workspace/d/ä b.txt", "one\ntwo\n", { createDirs: true });
  assert.equal(written.size, 8);
  assert.equal(await files.readText("/workspace/d/ä b.txt"), "one\ntwo\n");
  assert.equal(await files.readText("/workspace/d/ä b.txt", { offset: 4, limit: 2 }), "tw");
  const stat = await files.stat("/workspace/d/ä b.txt");
  assert.equal(stat.type, "file");
  assert.equal(stat.etag, written.etag);
  await files.mkdir("/workspace/d/e");
  await files.write("/workspace/d/e/f", new Blob(["blob"]));
  await files.write("/workspace/d/e/g", new Response("stream").body!);
  const listed = await collect(files.walk("/workspace/d", { depth: 3 }));
  assert.deepEqual(
    listed.map((entry) => entry.path),
    ["/workspace/d/e", "/workspace/d/e/f", "/workspace/d/e/g", "/workspace/d/ä b.txt"],
  );
  const page = await files.list("/workspace/d", { limit: 1 });
  assert.equal(page.items.length, 1);
  assert.ok(page.nextCursor);
  const entries = await collect(files.list("/workspace/d", { limit: 1 }));
  assert.deepEqual(
    entries.map((entry) => entry.path),
    ["/workspace/d/e", "/workspace/d/ä b.txt"],
  );
  assert.deepEqual(await collect(files.list("/workspace/d", { limit: 1, cursor: page.nextCursor })), [
    entries[1],
  ]);
  await assert.rejects(collect(files.list("/workspace/none")), NotFoundError);
  assert.equal(await files.exists("/workspace/d/ä b.txt"), true);
  assert.equal(await files.exists("/workspace/none"), false);
  await assert.rejects(files.exists("/etc/../.."), InvalidRequestError);
  const found = await files.search("/workspace/d", "^t.o$");
  assert.deepEqual(found.items, [{ path: "/workspace/d/ä b.txt", line: 2, column: 1, text: "two" }]);
  assert.equal((await files.move("/workspace/d/e/f", "/workspace/d/h")).path, "/workspace/d/h");
  await assert.rejects(files.remove("/workspace/d"), FileTypeError);
  await files.remove("/workspace/d", { recursive: true });
  await assert.rejects(files.stat("/workspace/d"), NotFoundError);
});

test("a conditional write needs the version that it names", async () => {
  const thread = setup.thread();
  await thread.exec("true");
  const first = await thread.files.write("/workspace/v", "1", { ifAbsent: true });
  await assert.rejects(thread.files.write("/workspace/v", "2", { ifAbsent: true }), AlreadyExistsError);
  await thread.files.write("/workspace/v", "2", { ifMatch: first.etag! });
  await assert.rejects(
    thread.files.write("/workspace/v", "3", { ifMatch: first.etag! }),
    VersionConflictError,
  );
  assert.equal(await thread.files.readText("/workspace/v"), "2");
});

test("a watch sees changes, and reports a lost connection", async () => {
  const thread = setup.thread();
  await thread.exec("true");
  await thread.files.mkdir("/workspace/w");
  const abort = new AbortController();
  const events: FileEvent[] = [];
  const watching = (async () => {
    for await (const event of thread.files.watch("/workspace/w", { signal: abort.signal }))
      events.push(event);
  })();
  await until("the watch", () => events.some((event) => event.type === "ready"));
  await thread.files.write("/workspace/w/a", "");
  await until("the file", () =>
    events.some((event) => event.type === "created" && event.path === "/workspace/w/a"),
  );
  await setup.server.kill();
  await setup.server.start();
  await until("the new watch", () => events.some((event) => event.type === "lost"));
  await thread.files.write("/workspace/w/b", "");
  await until("the next file", () =>
    events.some((event) => event.type === "created" && event.path === "/workspace/w/b"),
  );
  abort.abort();
  await assert.rejects(watching, { name: "AbortError" });
});

test("a terminal shows its screen and takes input", async () => {
  const thread = setup.thread();
  const terminal = await thread.terminals.create({ cols: 100, rows: 30 });
  await terminal.waitFor({ prompt: true });
  await terminal.type("read -p 'name? ' x; echo \"hello $x\"\n");
  // At the start of a line, because the echo of the typed command has the same words.
  await terminal.waitFor(/^name\?/m);
  await terminal.type("you\n");
  assert.match(await terminal.waitFor(/^hello you$/m), /hello you/);
  const screen = await terminal.screen();
  assert.equal(screen.cols, 100);
  assert.ok(screen.data.includes("hello you"));
  await terminal.resize(90, 20);
  assert.equal((await terminal.info()).cols, 90);
  await terminal.type("sleep 1000\n");
  await terminal.waitFor("sleep 1000");
  await assert.rejects(terminal.waitFor({ prompt: true }, { timeoutMs: 300 }), WaitTimeoutError);
  await assert.rejects(terminal.waitFor("never", { timeoutMs: 300 }), WaitTimeoutError);
  await terminal.signal("INT");
  await terminal.waitFor({ prompt: true });
  assert.equal((await thread.terminals.list()).items.length, 2);
  await terminal.delete();
  await assert.rejects(terminal.info(), NotFoundError);
});

test("a program in a terminal ends with an exit event", async () => {
  const thread = setup.thread();
  const terminal = await thread.terminals.create({ cmd: ["sh", "-c", "echo hi; read x; exit 7"] });
  const events: TerminalEvent[] = [];
  for await (const event of terminal.attach()) {
    // The program ends while it is watched.
    if (event.type === "snapshot") await terminal.type("\n");
    events.push(event);
  }
  assert.equal(events[0]?.type, "snapshot");
  assert.deepEqual(events.at(-1), { type: "exit", code: 7, signal: null });
});

test("the state of a shell can be listed, rolled back and forked", async () => {
  const thread = setup.thread();
  await thread.exec("export A=1; f() { echo one; }");
  const terminal = await thread.terminals.default();
  const { version } = await terminal.info();
  await terminal.setEnv({ MY_VAR: "x" });
  await thread.exec("export A=2; unset -f f");
  const fork = await terminal.versions.fork(version);
  assert.equal((await fork.exec("echo $A; f")).stdout, "1\none\n");
  const detail = await terminal.versions.get(version);
  assert.equal(detail.env.A, "1");
  const changed = await terminal.versions.list({ limit: 2 });
  assert.equal(changed.items[0]!.version, version + 2);
  const state = await terminal.versions.rollback(version);
  assert.equal(state.version, version + 3);
  assert.equal((await thread.exec("echo $A; f; echo [$MY_VAR]")).stdout, "1\none\n[]\n");
  const history = await terminal.history({ q: "unset -f" });
  assert.equal(history.items.length, 1);
});

test("a thread has options, messages, a session and a lease", async () => {
  const thread = await setup.client.threads.put("configured", {
    env: { SOME_NAME: "v" },
    cwd: "/tmp",
    labels: { some_label: "l" },
    policy: { idleTimeoutS: 600 },
  });
  const info = await thread.info();
  assert.deepEqual(info.labels, { some_label: "l" });
  assert.equal((await thread.exec("echo $SOME_NAME $PWD")).stdout, "v /tmp\n");
  await thread.addMessage("user", "hello");
  assert.equal((await thread.messages()).items[0]?.content, "hello");
  assert.equal((await thread.session()).status, "active");
  await thread.touch();
  assert.equal((await thread.pause()).instance?.state, "paused");
  await assert.rejects(thread.exec("true", { resume: false }), SteadError);
  assert.equal((await thread.resume()).instance?.state, "running");
  const listed = await setup.client.threads.list();
  assert.ok(listed.items.some((item) => item.threadId === "configured"));
  assert.ok((await setup.client.providers()).some((provider) => provider.name === "local"));
  await thread.delete();
  await assert.rejects(thread.info(), NotFoundError);
});

test("events arrive as they happen, and continue after an id", async () => {
  const abort = new AbortController();
  const events: SteadEvent[] = [];
  const listening = (async () => {
    for await (const event of setup.client.events({ signal: abort.signal })) events.push(event);
  })();
  const thread = setup.thread();
  await thread.exec("true");
  // Events before the connection was open are not delivered.
  const ended = await until("the end of a command", async () => {
    await thread.exec("true");
    return events.find((event) => event.type === "command_ended");
  });
  assert.equal(typeof ended.commandId, "string");
  abort.abort();
  await assert.rejects(listening, { name: "AbortError" });
  for await (const event of setup.client.events({ from: ended.id! - 1 })) {
    assert.equal(event.id, ended.id);
    break;
  }
});

test("a link opens one port", async () => {
  const thread = setup.thread();
  await thread.exec("true");
  const program = createServer((request, response) => response.end(`hello from ${request.url}`));
  program.listen(0, "127.0.0.1");
  await once(program, "listening");
  const { port } = program.address() as AddressInfo;
  const link = await thread.ports.link(port, { expiresInMs: 60_000 });
  const { host } = new URL(link.url);
  assert.match(host, /^p-/);
  assert.ok(Date.parse(link.expiresAt) > Date.now());
  assert.ok((await thread.ports()).includes(port));
  // Not every resolver knows the subdomains of localhost.
  const request = get(new URL("/page", setup.server.url), { headers: { host } });
  const [response] = (await once(request, "response")) as [IncomingMessage];
  assert.equal(await text(response), "hello from /page");
  program.close();
  await assert.rejects(setup.client.threads.open("missing").ports.link(port), NotFoundError);
});

test("any operation of the API document can be called", async () => {
  const project = await setup.client.call("post", "/api/projects", { body: { prefix: "demo", tags: ["a"] } });
  assert.match(project.projectId, /^demo-/);
  const page = await setup.client.call("get", "/api/projects", { query: { prefix: "demo" } });
  assert.equal(page.items.length, 1);
});

test("errors are classes with the code and detail of the server", async () => {
  const thread = setup.thread();
  await assert.rejects(thread.exec("true", { timeoutMs: 0 }), (error) => {
    assert.ok(error instanceof InvalidRequestError);
    assert.equal(error.name, "InvalidRequestError");
    assert.equal(error.code, "invalid_body");
    assert.equal(error.status, 400);
    assert.deepEqual(
      error.fieldErrors.map(({ pointer }) => pointer),
      ["/timeout_ms"],
    );
    return true;
  });
  await assert.rejects(setup.client.threads.open("nowhere").info(), NotFoundError);
  await assert.rejects(
    new Stead({ url: setup.server.url, token: "wrong" }).threads.list(),
    UnauthorizedError,
  );
  await thread.exec("true");
  await assert.rejects(
    thread.files.read("/workspace/../../etc/passwd"),
    (error) => error instanceof SteadError,
  );
  await assert.rejects(thread.files.write("/workspace", "x"), FileTypeError);
  assert.throws(() => setup.client.threads.open(".."), InvalidRequestError);
  assert.throws(() => new Stead({ url: "127.0.0.1:7832" }), InvalidRequestError);
  assert.ok(new ForbiddenError({ code: "forbidden", detail: "d", status: 403 }) instanceof SteadError);
});
