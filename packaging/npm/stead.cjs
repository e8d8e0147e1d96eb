#!/usr/bin/env node
// Runs the binary of this machine's architecture, which is in a package of its own.
"use strict";
const { spawn } = require("node:child_process");
const { constants } = require("node:os");

const name = `@stead/cli-linux-${process.arch}`;
let program;
try {
  program = require.resolve(`${name}/stead`);
} catch {
  console.error(`stead: the package ${name} is not installed; Stead has binaries for Linux on x64 and arm64`);
  process.exit(1);
}
const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
// The terminal sends its signals to the binary, too; this process ends after it.
for (const signal of ["SIGINT", "SIGQUIT"]) process.on(signal, () => {});
for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("error", (error) => {
  console.error(`stead: cannot run ${program}: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => process.exit(code ?? 128 + constants.signals[signal]));
