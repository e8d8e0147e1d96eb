// A server for tests and tools: `stead serve` in a home of its own, which can be killed and started again.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { openSync } from "node:fs";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const BINARY = process.env.STEAD_BIN;

export class Server {
  url = "";
  token = "";
  #process;
  #provider;
  #flags;

  /** @param {string} home @param {string} provider @param {string[]} flags */
  constructor(home, provider, flags) {
    this.home = home;
    this.#provider = provider;
    this.#flags = flags;
  }

  /** Starts the server, at the address it had before if it had one. */
  async start() {
    if (!BINARY) throw new Error("STEAD_BIN must be the path of a built `stead`");
    const listen = this.url ? new URL(this.url).host : "127.0.0.1:0";
    const log = openSync(join(this.home, "log"), "a");
    this.#process = spawn(BINARY, ["serve", "--home", this.home, "--listen", listen, ...this.#flags], {
      stdio: ["ignore", "pipe", log],
      env: { ...process.env, STEAD_LOG: "warn", STEAD_PROVIDER: this.#provider },
    });
    for await (const line of createInterface({ input: this.#process.stdout })) {
      const found = /^listening on (http\S+)/.exec(line);
      if (!found) break;
      this.url = found[1];
      this.token = (await readFile(join(this.home, "token"), "utf8")).trim();
      return;
    }
    throw new Error(`the server did not start:\n${await readFile(join(this.home, "log"), "utf8")}`);
  }

  /** Kills the server as a crash would. */
  async kill() {
    const exited = once(this.#process, "exit");
    this.#process.kill("SIGKILL");
    await exited;
  }

  /** Ends the server and the shells it left running. */
  async close() {
    if (this.#process.exitCode === null && this.#process.signalCode === null) {
      const exited = once(this.#process, "exit");
      this.#process.kill("SIGTERM");
      await exited;
    }
    await once(spawn(BINARY, ["namespace", "end", this.home], { stdio: "ignore" }), "exit");
    const run = join(this.home, "run");
    for (const name of await readdir(run).catch(() => [])) await endHost(join(run, name));
    await rm(this.home, { recursive: true, force: true });
  }
}

/** Starts a server in a temporary home.
 * @param {string} provider @param {string[]} flags */
export async function startServer(provider = "local", ...flags) {
  const server = new Server(await mkdtemp(join(tmpdir(), "stead-ts-")), provider, flags);
  await server.start();
  return server;
}

/** Ends a host by the process id that it wrote to its directory. */
async function endHost(directory) {
  try {
    const pid = Number.parseInt(await readFile(join(directory, "host.pid"), "utf8"), 10);
    const command = (await readFile(`/proc/${pid}/cmdline`, "utf8")).split("\0");
    if (command.includes("host")) process.kill(pid, "SIGKILL");
  } catch {
    // The host has ended already.
  }
}
