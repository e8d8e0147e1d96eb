// What every platform must be able to do: run, stream, read and write. Runs as it is in Deno, Bun and browsers.

/** @param {typeof import("../dist/index.js")} sdk @param {{ url: string, token?: string }} server */
export async function smoke({ Stead, NotFoundError }, server) {
  const expect = (seen, wanted) => {
    if (seen !== wanted) throw new Error(`expected ${JSON.stringify(wanted)}, saw ${JSON.stringify(seen)}`);
  };
  const client = new Stead(server);
  const thread = client.threads.open("smoke");
  expect((await thread.exec("echo hi")).stdout, "hi\n");
  let streamed = "";
  for await (const event of thread.execStream("printf 'é'; seq 1 20000")) {
    if (event.type === "stdout") streamed += event.text;
  }
  expect(streamed.length, 1 + 108_894);
  const bytes = new Uint8Array(1 << 20).map((_, index) => index * 7);
  await thread.files.write("/workspace/smoke", bytes);
  const read = await thread.files.read("/workspace/smoke");
  expect(read.length, bytes.length);
  expect(
    read.every((byte, index) => byte === bytes[index]),
    true,
  );
  const command = await thread.start("cat");
  await command.writeStdin("in", { eof: true });
  expect((await command.wait()).stdout, "in");
  const terminal = await thread.terminals.default();
  await terminal.type("echo scr''een\n");
  await terminal.waitFor("screen");
  const abort = new AbortController();
  const waiting = thread.exec("sleep 100", { signal: abort.signal, cancelOnAbort: true });
  abort.abort();
  expect(await waiting.catch((error) => error.name), "AbortError");
  expect(
    await client.threads
      .open("none")
      .info()
      .catch((error) => error instanceof NotFoundError),
    true,
  );
  await thread.delete();
  return "smoke passed";
}
