import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before } from "node:test";
import { fileURLToPath } from "node:url";
import { test, withServer } from "./harness.js";

const PACKAGE = fileURLToPath(new URL("..", import.meta.url));
const setup = withServer();
let scratch: string;
before(async () => {
  scratch = await mkdtemp(join(tmpdir(), "stead-ts-package-"));
  await mkdir(join(scratch, "node_modules/@stead"), { recursive: true });
  await symlink(PACKAGE, join(scratch, "node_modules/@stead/sdk"));
});
after(() => rm(scratch, { recursive: true, force: true }));

/** The code blocks of a text, without the comment marks before each line. */
function codeBlocks(text: string, language: string): string[] {
  const plain = text.replace(/^\s*\* ?/gm, "");
  return [...plain.matchAll(new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\``, "gms"))].map((found) => found[1]!);
}

test("the core imports nothing but its own modules", async () => {
  const queue = [join(PACKAGE, "dist/index.js")];
  const seen = new Set(queue);
  for (const path of queue) {
    const source = await readFile(path, "utf8");
    for (const [, name] of source.matchAll(/(?:from|import)\s*\(?\s*"([^"]+)"/g)) {
      assert.match(name!, /^\.\//, `${path} imports ${name}`);
      const next = join(dirname(path), name!);
      if (!seen.has(next)) queue.push(next);
      seen.add(next);
    }
    assert.doesNotMatch(source, /\b(process|Buffer|require|__dirname|setImmediate)\b(?!\.stdout)/, path);
  }
  assert.ok(seen.size > 10);
});

test("the quick start of the README works", async () => {
  const [code] = codeBlocks(await readFile(join(PACKAGE, "README.md"), "utf8"), "js");
  assert.ok(code!.trim().split("\n").length <= 10, "ten lines");
  await writeFile(join(scratch, "quick.mjs"), code!);
  const env = { ...process.env, STEAD_HOME: setup.server.home, STEAD_URL: "" };
  const output = execFileSync(process.execPath, ["quick.mjs"], { cwd: scratch, env, encoding: "utf8" });
  assert.equal(output, "hello from /tmp\n1\n2\n3\n");
});

test("the examples in comments and in the guide compile", async () => {
  const guide = join(PACKAGE, "../../docs/typescript.md");
  const sources = (await readdir(join(PACKAGE, "src"), { recursive: true })).filter((name) =>
    name.endsWith(".ts"),
  );
  const files = [
    ...sources.filter((name) => name !== "schema.ts").map((name) => join(PACKAGE, "src", name)),
    guide,
  ];
  const blocks = (await Promise.all(files.map((file) => readFile(file, "utf8")))).flatMap((text) =>
    codeBlocks(text, "ts"),
  );
  assert.ok(blocks.length > 20, `${blocks.length} examples`);
  // Imports stand at the beginning of a module; what an example does not declare is declared for it.
  const functions = blocks.map((block) => {
    const body = block.replace(/^import .*$/gm, "");
    const declared = (name: string): boolean => new RegExp(`\\b(const|let) ${name}\\b`).test(body);
    const given = ["client", "sandbox", "thread", "terminal", "id", "token"].filter(
      (name) => !declared(name),
    );
    return `export async function example({ ${given.join(", ")} }: Given) {\n${body}\n}`;
  });
  const names = "Stead, NotFoundError, uploadDirectory, downloadDirectory";
  const head = `import { ${names}, type Sandbox, type Terminal, type Thread } from "@stead/sdk/node";
interface Given { client: Stead; sandbox: Sandbox; thread: Thread; terminal: Terminal; id: string; token: string }\n`;
  const modules = functions.map((text, index) =>
    text.replace("function example", `function example${index}`),
  );
  await writeFile(join(scratch, "examples.ts"), head + modules.join("\n"));
  const types = ["--typeRoots", join(PACKAGE, "node_modules/@types"), "--types", "node"];
  const target = [
    "--module",
    "nodenext",
    "--target",
    "es2022",
    "--lib",
    "es2022,dom",
    "--strict",
    "--noEmit",
  ];
  const options = ["--skipLibCheck", ...target, ...types];
  await writeFile(join(scratch, "package.json"), '{ "type": "module" }');
  const compiler = join(PACKAGE, "node_modules/typescript/bin/tsc");
  try {
    execFileSync(process.execPath, [compiler, ...options, "examples.ts"], { cwd: scratch, encoding: "utf8" });
  } catch (error) {
    assert.fail((error as { stdout: string }).stdout);
  }
});
