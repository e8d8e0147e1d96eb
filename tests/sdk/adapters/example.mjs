// Runs an example as its users do, in a directory where our SDK is installed beside the framework.

import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../../..", import.meta.url));

/** Returns what an example prints, which must succeed. */
export function printed(name) {
  const { SDK_DIR: directory, E2B_API_URL, E2B_API_KEY } = process.env;
  const installed = join(directory, "node_modules/@stead/sdk");
  mkdirSync(join(installed, ".."), { recursive: true });
  rmSync(installed, { force: true });
  symlinkSync(join(root, "sdk/typescript"), installed);
  copyFileSync(join(root, "examples", name), join(directory, name));
  const env = { ...process.env, STEAD_URL: E2B_API_URL, STEAD_TOKEN: E2B_API_KEY };
  return execFileSync(process.execPath, [join(directory, name)], { env, encoding: "utf8", timeout: 120_000 });
}
