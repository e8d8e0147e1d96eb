// LangChain's deepagents for JavaScript in a sandbox, with a scripted model: `npm i @stead/sdk deepagents`.

import { AIMessage } from "@langchain/core/messages";
import { FakeListChatModel } from "@langchain/core/utils/testing";
import { steadSandbox } from "@stead/sdk/deepagents";
import { Stead } from "@stead/sdk/node";
import { BaseSandbox, createDeepAgent } from "deepagents";

const call = (id, name, args) => new AIMessage({ content: "", tool_calls: [{ id, name, args }] });

/** Stands in for a model that can call tools. */
class ScriptedModel extends FakeListChatModel {
  steps = [
    call("1", "write_file", { file_path: "/workspace/last.sh", content: "seq 10 | tail -1\n" }),
    call("2", "execute", { command: "cd /workspace && sh last.sh" }),
    new AIMessage("The last one is ten."),
  ];
  bindTools() {
    return this;
  }
  async _generate() {
    const message = this.steps.shift();
    return { generations: [{ message, text: message.text }] };
  }
}

const SteadSandbox = steadSandbox(BaseSandbox);
const client = await Stead.connect();
const sandbox = await client.sandboxes.create();
try {
  const backend = new SteadSandbox(sandbox);
  const agent = createDeepAgent({ model: new ScriptedModel({ responses: [] }), backend });
  const { messages } = await agent.invoke({ messages: [{ role: "user", content: "Count to ten." }] });
  console.log("the shell printed:", messages.find(({ name }) => name === "execute").text.split("\n")[0]);
  console.log(messages.at(-1).text);
} finally {
  await sandbox.delete();
}
