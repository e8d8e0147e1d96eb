"""An agent of Pydantic AI with a sandbox as its workspace, and a scripted model."""

from __future__ import annotations

import asyncio

from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from stead.adapters.pydantic_ai import SteadWorkspace


def script(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Stands in for a model: calls the tool, then answers with its result."""
    if len(messages) == 1:
        return ModelResponse(parts=[ToolCallPart("shell", {"command": "seq 10 | tail -1 > last; cat last"})])
    return ModelResponse(parts=[TextPart(f"The last one is {messages[-1].parts[0].content}.")])


agent = Agent(FunctionModel(script))


@agent.tool
async def shell(context: RunContext, command: str) -> str:
    """Runs a command in the workspace."""
    return (await context.workspace.run(command, shell=True)).stdout.strip()


async def main() -> None:
    workspace = SteadWorkspace(labels={"example": "pydantic"})
    print((await agent.run("Count to ten.", workspace=workspace)).output)
    # Another process continues in the same workspace by its reference.
    later = SteadWorkspace(ref=workspace.ref)
    print("the file is still there:", (await later.run("cat last", shell=True)).stdout, end="")
    await later.delete()
    await workspace.close()
    await later.close()


if __name__ == "__main__":
    asyncio.run(main())
