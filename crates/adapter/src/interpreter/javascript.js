// Runs cells of JavaScript one after the other in one global scope.
// Requests are lines of JSON on standard input; events are lines of JSON on descriptor 3.
const fs = require("node:fs");
const { PassThrough } = require("node:stream");
const repl = require("node:repl");
const { inspect } = require("node:util");

let cellId = null;
let count = 0;
let interrupt = () => {};

function emit(kind, fields) {
  let line = Buffer.from(JSON.stringify({ type: kind, for: cellId, ...fields }) + "\n");
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
    if (text) emit(kind, { text, timestamp: Date.now() * 1e6 });
    const callback = typeof encoding === "function" ? encoding : done;
    if (callback) process.nextTick(callback);
    return true;
  };
}

// Never closed: the REPL would end with its input.
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
// Older versions of Node.js report errors through a domain.
shell._domain?.removeAllListeners("error").on("error", (error) => failed(error));

const javascript = (code, language) => {
  if (language !== "typescript") return code;
  const { stripTypeScriptTypes } = require("node:module");
  if (!stripTypeScriptTypes) throw new Error("this version of Node.js does not support TypeScript");
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

async function runCell(request) {
  cellId = request.for;
  count += 1;
  const before = { ...process.env };
  Object.assign(process.env, request.envs ?? {});
  try {
    const value = await run(javascript(request.code, request.language));
    if (value !== undefined) emit("result", { text: inspect(value), is_main_result: true });
  } catch (error) {
    const isError = error instanceof Error || (error && error.stack);
    emit("error", {
      name: isError ? String(error.name) : "Error",
      value: isError ? String(error.message) : inspect(error),
      traceback: isError ? String(error.stack) : inspect(error),
    });
  }
  interrupt = failed = () => {};
  for (const key of Object.keys(process.env)) if (!(key in before)) delete process.env[key];
  Object.assign(process.env, before);
  emit("number_of_executions", { execution_count: count });
  emit("control", { text: "completed" });
}

(async () => {
  for await (const line of require("node:readline").createInterface({ input: process.stdin })) {
    await runCell(JSON.parse(line));
  }
  process.exit(0);
})();
