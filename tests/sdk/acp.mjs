// `stead acp` with the official library of the Agent Client Protocol, which is installed in SDK_DIR.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Readable, Writable } from "node:stream";

const { SDK_DIR, STEAD_BIN, E2B_API_KEY: token, E2B_API_URL: url } = process.env;
const acp = await import(`${SDK_DIR}/node_modules/@agentclientprotocol/sdk/dist/v1/stable/acp.js`);
const env = { ...process.env, STEAD_URL: url, STEAD_TOKEN: token };
const stream = ({ stdin, stdout }) => acp.ndJsonStream(Writable.toWeb(stdin), Readable.toWeb(stdout));

/** Starts `stead acp`. */
const start = (...args) => spawn(STEAD_BIN, ["acp", ...args], { env, stdio: ["pipe", "pipe", "inherit"] });

/** Runs `act` as an agent whose client is `stead acp`. */
async function asAgent(act) {
  const child = start();
  try {
    return await acp.agent({ name: "test" }).connectWith(stream(child), act);
  } finally {
    child.stdin.destroy();
    if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
  }
}

const request = (command, more = {}) => ({ sessionId: "s1", command, ...more });

/** An agent for an editor: each prompt is a command, and its output is the answer. */
function agentForEditor() {
  acp
    .agent({ name: "shell" })
    .onRequest("initialize", ({ params }) => ({
      protocolVersion: params.protocolVersion,
      agentCapabilities: { loadSession: params.clientCapabilities?.terminal === true },
    }))
    .onRequest("session/new", () => ({ sessionId: "s1" }))
    .onRequest("session/prompt", async ({ params, client }) => {
      const terminal = await client.createTerminal(request(params.prompt[0].text));
      await client.notify("session/update", {
        sessionId: "s1",
        update: {
          sessionUpdate: "tool_call",
          toolCallId: "t1",
          title: "Run",
          content: [{ type: "terminal", terminalId: terminal.id }],
        },
      });
      await terminal.waitForExit();
      const { output } = await terminal.currentOutput();
      await terminal.release();
      await client.notify("session/update", {
        sessionId: "s1",
        update: { sessionUpdate: "agent_message_chunk", content: { type: "text", text: output } },
      });
      return { stopReason: "end_turn" };
    })
    .connect(stream({ stdin: process.stdout, stdout: process.stdin }));
}

if (process.argv[2] === "agent") {
  agentForEditor();
} else {
  test("a terminal runs a command and reports its output and end", () =>
    asAgent(async (client) => {
      const terminal = await client.createTerminal(
        request("sh", {
          args: ["-c", 'echo "$GREETING $1"; echo err >&2; pwd; exit 3', "sh", "it's $HOME"],
          env: [{ name: "GREETING", value: "hello ä" }],
          cwd: "/usr",
        }),
      );
      const exit = await terminal.waitForExit();
      assert.equal(exit.exitCode, 3);
      const { output, truncated, exitStatus } = await terminal.currentOutput();
      assert.equal(output, "hello ä it's $HOME\nerr\n/usr\n");
      assert.equal(truncated, false);
      assert.equal(exitStatus.exitCode, 3);
      await terminal.release();
      await assert.rejects(terminal.currentOutput(), { code: -32002 });
    }));

  test("a command without arguments is a command line", () =>
    asAgent(async (client) => {
      const terminal = await client.createTerminal(request("cat; seq 3 | tail -1 # comment"));
      assert.equal((await terminal.waitForExit()).exitCode, 0);
      assert.equal((await terminal.currentOutput()).output, "3\n");
      await terminal.release();
    }));

  test("output is cut at its beginning, at a character", () =>
    asAgent(async (client) => {
      const command = "i=0; while [ $i -lt 1000 ]; do printf ä; i=$((i + 1)); done; printf end";
      const terminal = await client.createTerminal(request(command, { outputByteLimit: 10 }));
      await terminal.waitForExit();
      const { output, truncated } = await terminal.currentOutput();
      assert.deepEqual([output, truncated], ["äääend", true]);
      await terminal.release();
    }));

  test("a command is killed and its terminal stays", () =>
    asAgent(async (client) => {
      const terminal = await client.createTerminal(request("echo started; sleep 600"));
      const waiting = terminal.waitForExit();
      for (let seen = ""; !seen.includes("started"); ) {
        const now = await terminal.currentOutput();
        assert.equal(now.exitStatus ?? null, null);
        seen = now.output;
      }
      await terminal.kill();
      const exit = await waiting;
      assert.ok(exit.exitCode == null && exit.signal, JSON.stringify(exit));
      assert.equal((await terminal.currentOutput()).output, "started\n");
      await terminal.kill();
      await terminal.release();
    }));

  test("commands run side by side", () =>
    asAgent(async (client) => {
      const slow = await client.createTerminal(request("sleep 600"));
      const quick = await client.createTerminal(request("echo quick"));
      assert.equal((await quick.waitForExit()).exitCode, 0);
      // Releasing a terminal ends its command.
      await Promise.all([slow.release(), quick.release()]);
    }));

  test("a terminal survives the death of stead acp", async () => {
    const first = start();
    const id = await acp.agent({ name: "test" }).connectWith(stream(first), async (client) => {
      const terminal = await client.createTerminal(request("until [ -e /tmp/acp-$PPID-none ]; do sleep 0.5; echo alive; done"));
      first.kill("SIGKILL");
      return terminal.id;
    });
    await asAgent(async (client) => {
      const params = { sessionId: "s2", terminalId: id };
      for (let seen = ""; !seen.includes("alive\nalive"); ) {
        seen = (await client.request("terminal/output", params)).output;
      }
      await client.request("terminal/kill", params);
      await client.request("terminal/wait_for_exit", params);
      await client.request("terminal/release", params);
    });
  });

  test("wrong requests are refused", () =>
    asAgent(async (client) => {
      await assert.rejects(client.request("terminal/output", { sessionId: "s", terminalId: "none" }), { code: -32002 });
      await assert.rejects(client.request("fs/read_text_file", { sessionId: "s", path: "/x" }), { code: -32601 });
    }));

  test("an editor runs an agent whose commands run in Stead", async () => {
    const child = start("--", process.execPath, fileURLToPath(import.meta.url), "agent");
    const updates = [];
    await acp
      .client({ name: "editor" })
      .onNotification("session/update", ({ params }) => void updates.push(params.update))
      .connectWith(stream(child), async (agent) => {
        const capabilities = { fs: { readTextFile: false, writeTextFile: false }, terminal: false };
        const initialized = await agent.request("initialize", {
          protocolVersion: 1,
          clientCapabilities: capabilities,
        });
        // With this message the agent confirms that terminals were offered.
        assert.equal(initialized.agentCapabilities.loadSession, true);
        const { sessionId } = await agent.request("session/new", { cwd: "/", mcpServers: [] });
        const prompt = [{ type: "text", text: "echo from $((40 + 2))" }];
        const { stopReason } = await agent.request("session/prompt", { sessionId, prompt });
        assert.equal(stopReason, "end_turn");
      });
    child.stdin.destroy();
    if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
    const [call, message] = updates;
    assert.match(call.content[0].content.text, /^Command cmd_\w+ of Stead/);
    assert.equal(message.content.text, "from 42\n");
  });
}
