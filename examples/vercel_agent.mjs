// The Vercel AI SDK with a sandbox, and a scripted model: `npm i @stead/sdk ai zod`.

import { Stead } from "@stead/sdk/node";
import { SandboxSession } from "@stead/sdk/ai";
import { generateText, isStepCount, tool } from "ai";
import { MockLanguageModelV4 } from "ai/test";
import { z } from "zod";

// Stands in for a model: calls the tool, then answers.
const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
const input = JSON.stringify({ command: "seq 10 | tail -1" });
const script = [
  {
    content: [{ type: "tool-call", toolCallId: "1", toolName: "shell", input }],
    finishReason: { unified: "tool-calls" },
  },
  { content: [{ type: "text", text: "The last one is ten." }], finishReason: { unified: "stop" } },
];
const model = new MockLanguageModelV4({ doGenerate: async () => ({ ...script.shift(), usage, warnings: [] }) });

const shell = tool({
  description: "Runs a command in the sandbox",
  inputSchema: z.object({ command: z.string() }),
  execute: async ({ command }, { experimental_sandbox }) => (await experimental_sandbox.run({ command })).stdout,
});

const client = await Stead.connect();
const sandbox = await client.sandboxes.create();
try {
  const result = await generateText({
    model,
    prompt: "Count to ten.",
    tools: { shell },
    stopWhen: isStepCount(3),
    experimental_sandbox: new SandboxSession(sandbox),
  });
  process.stdout.write(`the tool printed: ${result.steps[0].toolResults[0].output}`);
  console.log(result.text);
} finally {
  await sandbox.delete();
}
