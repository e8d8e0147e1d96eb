// Runs pieces of JavaScript one after the other, each of which finds what those before it left.
// Requests come as lines of JSON; what happens goes out the same way, to descriptor 3.
const fs = require("node:fs");
const { PassThrough } = require("node:stream");
const repl = require("node:repl");
const { inspect } = require("node:util");

let name = null;
let count = 0;
let interrupt = () => {};

function say(kind, fields) {
  let line = Buffer.from(JSON.stringify({ type: kind, for: name, ...fields }) + "\n");
  while (line.length) {
    try {
      line = line.subarray(fs.writeSync(3, line));
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5);
    }
  }
}

for (const kind of ["stdout", "stderr"]) {
  process[kind].write = (chunk, encoding, done) => {
    const text = typeof chunk === "string" ? chunk : Buffer.from(chunk).toString();
    if (text) say(kind, { text, timestamp: Date.now() * 1e6 });
    const called = typeof encoding === "function" ? encoding : done;
    if (called) process.nextTick(called);
    return true;
  };
}

// Never closed: its end would be the shell's.
const input = new PassThrough();
const shell = repl.start({
  input,
  output: new PassThrough().resume(),
  prompt: "",
  terminal: false,
  useGlobal: true,
});
process.on("SIGINT", () => interrupt());
let failed = () => {};
process.on("uncaughtException", (error) => failed(error));
process.on("unhandledRejection", (error) => failed(error));
// Older ones have their own way with what is thrown.
shell._domain?.removeAllListeners("error").on("error", (error) => failed(error));

const javascript = (code, language) => {
  if (language !== "typescript") return code;
  const { stripTypeScriptTypes } = require("node:module");
  if (!stripTypeScriptTypes) throw new Error("the node here cannot read TypeScript");
  return stripTypeScriptTypes(code, { mode: "transform" });
};

const run = (code) =>
  new Promise((resolve, reject) => {
    interrupt = () => reject(new Error("interrupted"));
    failed = reject;
    shell.eval(code + "\n", shell.context, `<cell ${count}>`, (error, value) => {
      if (error) reject(error instanceof repl.Recoverable ? error.err : error);
      else resolve(value);
    });
  });

async function piece(request) {
  name = request.for;
  count += 1;
  const before = { ...process.env };
  Object.assign(process.env, request.envs ?? {});
  try {
    const value = await run(javascript(request.code, request.language));
    if (value !== undefined) say("result", { text: inspect(value), is_main_result: true });
  } catch (error) {
    const known = error instanceof Error || (error && error.stack);
    say("error", {
      name: known ? String(error.name) : "Error",
      value: known ? String(error.message) : inspect(error),
      traceback: known ? String(error.stack) : inspect(error),
    });
  }
  interrupt = failed = () => {};
  for (const key of Object.keys(process.env)) if (!(key in before)) delete process.env[key];
  Object.assign(process.env, before);
  say("number_of_executions", { execution_count: count });
  say("control", { text: "completed" });
}

(async () => {
  for await (const line of require("node:readline").createInterface({ input: process.stdin })) {
    await piece(JSON.parse(line));
  }
  process.exit(0);
})();
