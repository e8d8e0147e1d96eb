"""The adapter for Pydantic AI, by its own suite for workspace backends, and with a scripted model."""

import pytest
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

from example import printed
from stead import Stead
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


def test_the_example_uses_one_workspace_and_deletes_it():
    assert printed("pydantic_agent") == "The last one is 10.\nthe file is still there: 10\n"
    with Stead.connect() as client:
        assert list(client.sandboxes.list(label="example=pydantic")) == []
