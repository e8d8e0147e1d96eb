import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { chmod, mkdir, mkdtemp, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before } from "node:test";
import { downloadDirectory, Stead, uploadDirectory } from "../dist/node/index.js";
import { test, withServer } from "./harness.js";
import { startServer } from "./server.mjs";

const setup = withServer();
let scratch: string;
before(async () => {
  scratch = await mkdtemp(join(tmpdir(), "stead-ts-files-"));
});
after(() => rm(scratch, { recursive: true, force: true }));

test("a client connects to the server of a home, of the environment and of its options", async () => {
  const { home, url, token } = setup.server;
  const saved = { ...process.env };
  try {
    assert.equal((await Stead.connect({ home })).url, url);
    process.env.STEAD_HOME = home;
    delete process.env.STEAD_URL;
    const local = await Stead.connect();
    assert.equal((await local.threads.open("home").exec("echo local")).stdout, "local\n");
    process.env.STEAD_HOME = join(scratch, "none");
    assert.equal((await Stead.connect()).url, "http://127.0.0.1:7832");
    process.env.STEAD_URL = url;
    process.env.STEAD_TOKEN = token;
    assert.ok(Array.isArray((await (await Stead.connect()).threads.list()).items));
    assert.equal((await Stead.connect({ url: "http://127.0.0.1:1" })).url, "http://127.0.0.1:1");
  } finally {
    process.env = saved;
  }
});

test("the token of a home is only sent to its own server and to this machine", async () => {
  const { home, token } = setup.server;
  const sentTo = async (url: string): Promise<string | null> => {
    let sent: string | null = null;
    const fetch: typeof globalThis.fetch = async (_, init) => {
      sent = new Headers(init?.headers).get("authorization");
      return Response.json({ items: [], next_cursor: null });
    };
    const saved = { ...process.env };
    try {
      delete process.env.STEAD_TOKEN;
      process.env.STEAD_URL = url;
      await (await Stead.connect({ home, fetch })).threads.list();
      delete process.env.STEAD_URL;
      await (await Stead.connect({ home, url, fetch })).threads.list();
    } finally {
      process.env = saved;
    }
    return sent;
  };
  for (const url of [setup.server.url, "http://localhost:1", "http://[::1]:1/", "https://127.0.0.1"]) {
    assert.equal(await sentTo(url), `Bearer ${token}`, url);
  }
  for (const url of ["https://stead.example.com", "http://127.0.0.1.example.com", "http://10.0.0.1:7832"]) {
    assert.equal(await sentTo(url), null, url);
  }
});

test("a local server with a certificate of its own is trusted by its home", async () => {
  const [cert, key] = [join(scratch, "cert.pem"), join(scratch, "key.pem")];
  const request = [
    "req",
    "-x509",
    "-newkey",
    "ec",
    "-pkeyopt",
    "ec_paramgen_curve:P-256",
    "-nodes",
    "-days",
    "1",
  ];
  const create = (key: string, cert: string) => {
    const files = ["-subj", "/CN=stead.example", "-keyout", key, "-out", cert];
    execFileSync("openssl", [...request, ...files], { stdio: "ignore" });
  };
  create(key, cert);
  const server = await startServer("local", "--tls-cert", cert, "--tls-key", key);
  try {
    assert.match(server.url, /^https:/);
    const client = await Stead.connect({ home: server.home });
    const thread = client.threads.open("tls");
    assert.equal((await thread.exec("echo secret")).stdout, "secret\n");
    for await (const event of thread.execStream("echo streamed")) {
      if (event.type === "stdout") assert.equal(event.text, "streamed\n");
    }
    await thread.files.write("/workspace/f", new Response("streamed").body!);
    assert.equal(await thread.files.readText("/workspace/f"), "streamed");
    // Another certificate in the home than that of the server, which would reload a change of its own files.
    const another = join(scratch, "another.pem");
    create(join(scratch, "another-key.pem"), another);
    await writeFile(join(server.home, "certificate.pem"), await readFile(another));
    const other = await Stead.connect({ home: server.home, retryTimeoutMs: 0 });
    await assert.rejects(other.threads.list(), /certificate/);
  } finally {
    await server.close();
  }
});

test("directories are copied up and down", async () => {
  const thread = setup.thread();
  await thread.exec("true");
  const [source, target] = [join(scratch, "source"), join(scratch, "target")];
  await mkdir(join(source, "a/b"), { recursive: true });
  await mkdir(join(source, "node_modules/x"), { recursive: true });
  const content = randomBytes(300_000);
  await writeFile(join(source, "a/b/data"), content);
  await writeFile(join(source, "run.sh"), "#!/bin/sh\n");
  await chmod(join(source, "run.sh"), 0o755);
  await writeFile(join(source, "node_modules/x/y"), "y");
  await symlink("run.sh", join(source, "link"));
  const filter = (path: string): boolean => path !== "node_modules";
  const up = await uploadDirectory(thread.files, source, "/workspace/app", { filter });
  assert.deepEqual(up, { files: 2, bytes: 300_010, skipped: ["link"] });
  await thread.exec("chmod +x app/run.sh; ln -s run.sh app/link; mkdir app/skip; touch app/skip/z", {
    check: true,
  });
  const down = await downloadDirectory(thread.files, "/workspace/app", target, {
    filter: (path) => path !== "skip",
  });
  assert.deepEqual(down, { files: 2, bytes: 300_010, skipped: ["link"] });
  assert.ok(content.equals(await readFile(join(target, "a/b/data"))));
  assert.equal((await stat(join(target, "run.sh"))).mode & 0o777, 0o755);
});
