// Builds the package when npm installs it from its folder. npm does not install the compiler in that case.

import { execSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

const folder = fileURLToPath(new URL("..", import.meta.url));
const run = (command) => execSync(command, { cwd: folder, stdio: "inherit" });

if (!existsSync(`${folder}/node_modules/typescript`)) run("npm ci --ignore-scripts --no-audit --no-fund");
run("npm run build");
