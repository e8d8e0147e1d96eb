"""The adapter for Pydantic AI, by its own suite for workspace backends, and with a scripted model."""

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

from stead import AsyncStead
from stead.adapters.pydantic_ai import SteadWorkspace


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


class TestWorkspace(WorkspaceBackendSuite):
    @pytest.fixture(scope="class")
    async def backend(self, anyio_backend):
        workspace = SteadWorkspace()
        yield workspace
        await workspace.delete()
        await workspace.close()

    @pytest.fixture
    def fresh_backend(self):
        return SteadWorkspace

    @pytest.fixture
    def destructive_backend(self):
        return SteadWorkspace

    @pytest.fixture
    def attach_backend(self):
        return lambda ref: SteadWorkspace(ref=ref)

    @pytest.fixture
    def destroy_environment(self):
        return lambda workspace: workspace.delete()


def scripted(messages, info):
    if len(messages) == 1:
        return ModelResponse(parts=[ToolCallPart("shell", {"command": "seq 10 | tail -1 > last; cat last"})])
    return ModelResponse(parts=[TextPart(f"The answer is {messages[-1].parts[0].content}.")])


@pytest.mark.anyio
async def test_an_agent_uses_the_workspace():
    agent = Agent(FunctionModel(scripted))

    @agent.tool
    async def shell(context: RunContext, command: str) -> str:
        return (await context.workspace.run(command, shell=True)).stdout.strip()

    workspace = SteadWorkspace()
    result = await agent.run("Count.", workspace=workspace)
    assert result.output == "The answer is 10."
    async with AsyncStead.connect() as client:
        sandbox = await client.sandboxes.get(workspace.ref.id)
        assert await sandbox.files.read_text("/workspace/last") == "10\n"
    await workspace.delete()
    await workspace.close()
