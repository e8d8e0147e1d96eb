"""The adapter for Inspect AI, by Inspect's own checks of sandboxes, and by an evaluation without a model."""

import pytest
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import solver
from inspect_ai.util import sandbox
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

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


@solver
def scripted():
    async def solve(state, generate):
        await sandbox().write_file("notes/question.txt", state.input_text)
        counted = await sandbox().exec(["wc", "-w", "notes/question.txt"])
        state.output.completion = counted.stdout
        return state

    return solve


def test_an_evaluation_finds_the_sandbox_by_its_name_and_deletes_it(tmp_path):
    samples = [Sample(input="one two three", target="3"), Sample(input="four five", target="2")]
    task = Task(dataset=samples, solver=scripted(), scorer=includes(), sandbox="stead")
    [log] = eval(task, model=None, display="none", log_format="json", log_dir=str(tmp_path))
    assert log.status == "success", log.error
    assert log.results.scores[0].metrics["accuracy"].value == 1
    with Stead.connect() as client:
        assert [one.info.labels["task"] for one in client.sandboxes.list(label="framework=inspect")] in ([], ["checks"])
