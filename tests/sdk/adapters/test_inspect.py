"""The adapter for Inspect AI, by Inspect's own checks of sandboxes, and by an evaluation without a model."""

import pytest
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

from example import printed
from stead import Stead
from stead.adapters.inspect import SteadSandboxEnvironment


@pytest.fixture(scope="module")
async def environment():
    environments = await SteadSandboxEnvironment.sample_init("checks", None, {})
    yield environments["default"]
    await SteadSandboxEnvironment.sample_cleanup("checks", None, environments, False)


@pytest.fixture
def sandbox_env(environment):
    return environment


def test_an_evaluation_finds_the_sandbox_by_its_name_and_deletes_it():
    assert printed("inspect_eval") == "success with accuracy 1.0\n"
    with Stead.connect() as client:
        assert [one.info.labels["task"] for one in client.sandboxes.list(label="framework=inspect")] in ([], ["checks"])
