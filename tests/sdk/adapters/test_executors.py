"""The code executors for AutoGen and smolagents."""

import asyncio

import pytest
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.utils import AgentError

from example import printed
from stead import Stead
from stead.adapters.autogen import SteadCodeExecutor
from stead.adapters.smolagents import SteadExecutor


async def test_autogen_runs_blocks_until_one_fails():
    async with SteadCodeExecutor(timeout=30) as executor:
        blocks = [CodeBlock("echo text > file", "bash"), CodeBlock("print(open('file').read(), end='')", "python")]
        result = await executor.execute_code_blocks(blocks, CancellationToken())
        assert (result.exit_code, result.output) == (0, "text\n")
        blocks = [CodeBlock("import sys; sys.exit(3)", "python"), CodeBlock("echo never", "bash")]
        result = await executor.execute_code_blocks(blocks, CancellationToken())
        assert (result.exit_code, result.output) == (3, "")
        assert (await executor.execute_code_blocks([CodeBlock("x", "cobol")], CancellationToken())).exit_code == 1
        await executor.restart()
        result = await executor.execute_code_blocks([CodeBlock("ls", "sh")], CancellationToken())
        assert (result.exit_code, result.output) == (0, "")
        assert SteadCodeExecutor.load_component(executor.dump_component())._timeout == 30


async def test_autogen_is_cancelled_and_timed_out():
    async with SteadCodeExecutor(timeout=1) as executor:
        late = await executor.execute_code_blocks([CodeBlock("echo a; sleep 60", "sh")], CancellationToken())
        assert late.exit_code == 124 and late.output.startswith("a\n")
        token = CancellationToken()
        asyncio.get_running_loop().call_later(0.2, token.cancel)
        with pytest.raises(asyncio.CancelledError):
            await executor.execute_code_blocks([CodeBlock("sleep 60", "sh")], token)


@pytest.fixture
def logger():
    return AgentLogger(level=LogLevel.OFF)


def test_smolagents_keeps_variables_and_reports_errors(logger):
    with Stead.connect() as client, client.sandboxes.create() as sandbox:
        executor = SteadExecutor(logger=logger, sandbox=sandbox)
        executor.send_variables({"x": [1, 2]})
        output = executor("print('logged'); x.append(3)\nsum(x)")
        assert (output.output, output.logs, output.is_final_answer) == ("6", "logged\n", False)
        with pytest.raises(AgentError, match="ZeroDivisionError"):
            executor("1 / 0")
        assert executor("import os; os.system('echo aside; cat'); x").output == "[1, 2, 3]"
        assert executor("!echo installed").logs == "installed\n"
        executor.cleanup()


def test_the_examples_run_their_code_in_a_sandbox():
    assert printed("smolagents_agent") == "the agent answers 20\n"
    assert printed("autogen_blocks") == "2 blocks, exit code 0: 15\n"


def test_smolagents_deletes_the_sandbox_it_created(logger):
    executor = SteadExecutor(logger=logger, labels={"kind": "smolagents"})
    assert executor("1 + 1").output == "2"
    with Stead.connect() as client:
        assert len(list(client.sandboxes.list(label="kind=smolagents"))) == 1
        executor.cleanup()
        assert list(client.sandboxes.list(label="kind=smolagents")) == []
