"""An agent of the OpenAI Agents SDK in a sandbox, with a scripted model, and its session resumed afterwards."""

from __future__ import annotations

import asyncio

from agents import RunConfig, Runner
from agents.sandbox import SandboxAgent, SandboxRunConfig
from agents.sandbox.manifest import Manifest
from agents.testing.model import ScriptedModel, assistant_message, function_call

from stead.adapters.openai_agents import SteadSandboxClient, SteadSandboxClientOptions

COMMAND = "seq 10 | tail -1 > last; cat last"
SCRIPT = [[function_call("exec_command", {"cmd": COMMAND}, call_id="1")], [assistant_message("The last one is ten.")]]


async def main() -> None:
    client = SteadSandboxClient()
    session = await client.create(manifest=Manifest(), options=SteadSandboxClientOptions(labels={"example": "openai"}))
    async with session:
        agent = SandboxAgent(name="counter", model=ScriptedModel(SCRIPT))
        run = RunConfig(tracing_disabled=True, sandbox=SandboxRunConfig(session=session))
        print((await Runner.run(agent, "Count to ten.", run_config=run)).final_output)
    # What another process needs to continue in the same sandbox, also after a crash of this one.
    state = client.serialize_session_state(session.state)
    session = await client.resume(client.deserialize_session_state(state))
    async with session:
        print("the file is still there:", (await session.exec("cat last")).stdout.decode(), end="")
    await client.delete(session)
    await client.close()


if __name__ == "__main__":
    asyncio.run(main())
