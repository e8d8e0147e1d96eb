"""The adapter for SWE-ReX."""

import pytest
from swerex import exceptions
from swerex.runtime.abstract import (
    BashAction,
    BashInterruptAction,
    CloseBashSessionRequest,
    Command,
    CreateBashSessionRequest,
    ReadFileRequest,
    UploadRequest,
    WriteFileRequest,
)

from example import printed
from stead.adapters.swerex import SteadDeployment


@pytest.fixture(scope="module")
async def runtime():
    deployment = SteadDeployment()
    with pytest.raises(exceptions.DeploymentNotStartedError):
        deployment.runtime.is_alive  # noqa: B018
    await deployment.start()
    await deployment.runtime.create_session(CreateBashSessionRequest())
    yield deployment.runtime
    await deployment.runtime.close()
    await deployment.stop()


async def test_a_session_keeps_its_state_and_merges_its_output(runtime):
    assert await runtime.is_alive()
    await runtime.run_in_session(BashAction(command="cd /usr; export COLOR=red # a comment"))
    seen = await runtime.run_in_session(BashAction(command="echo one; echo two >&2; echo $COLOR $PWD"))
    assert (seen.output, seen.exit_code) == ("one\ntwo\nred /usr\n", 0)
    seen = await runtime.run_in_session(BashAction(command="cat <<END\nhere\nEND"))
    assert seen.output == "here\n"
    with pytest.raises(exceptions.SessionExistsError):
        await runtime.create_session(CreateBashSessionRequest())
    with pytest.raises(exceptions.SessionDoesNotExistError):
        await runtime.run_in_session(BashAction(command="true", session="other"))


async def test_failures_and_timeouts(runtime):
    with pytest.raises(exceptions.NonZeroExitCodeError, match="exited with 3"):
        await runtime.run_in_session(BashAction(command="(exit 3)"))
    assert (await runtime.run_in_session(BashAction(command="(exit 3)", check="silent"))).exit_code == 3
    assert (await runtime.run_in_session(BashAction(command="(exit 3)", check="ignore"))).exit_code is None
    seen = await runtime.run_in_session(BashAction(command="echo 'unfinished", check="silent"))
    assert seen.exit_code != 0 and "unexpected" in seen.output
    with pytest.raises(exceptions.CommandTimeoutError):
        await runtime.run_in_session(BashAction(command="sleep 60", timeout=0.5))
    assert (await runtime.run_in_session(BashAction(command="echo alive"))).output == "alive\n"


async def test_an_interactive_program(runtime):
    await runtime.create_session(CreateBashSessionRequest(session="python"))

    async def enter(command, **options):
        return await runtime.run_in_session(BashAction(command=command, session="python", timeout=30, **options))

    started = await enter("python3 -q", is_interactive_command=True, expect=[">>> "])
    assert started.expect_string == ">>> "
    assert (await enter("6 * 7", is_interactive_command=True, expect=[">>> "])).output == "42"
    sleep = "print('sta' + 'rted', flush=True); import time; time.sleep(60)"
    await enter(sleep, is_interactive_command=True, expect=["started"])
    await runtime.run_in_session(BashInterruptAction(session="python"))
    assert (await enter("7 * 7", is_interactive_command=True, expect=["49"])).expect_string == "49"
    await enter("exit()", is_interactive_quit=True)
    assert (await enter("echo back")).output == "back\n"
    await runtime.close_session(CloseBashSessionRequest(session="python"))


async def test_commands_and_files(runtime, tmp_path):
    done = await runtime.execute(Command(command=["sh", "-c", "echo out; echo err >&2; exit 2"], cwd="/tmp"))
    assert (done.stdout, done.stderr, done.exit_code) == ("out\n", "err\n", 2)
    done = await runtime.execute(
        Command(command="echo $A; echo b >&2", shell=True, env={"A": "a"}, merge_output_streams=True)
    )
    assert (done.stdout, done.stderr) == ("a\nb\n", "")
    with pytest.raises(exceptions.NonZeroExitCodeError):
        await runtime.execute(Command(command="false", check=True))
    await runtime.write_file(WriteFileRequest(path="/workspace/new/file", content="é"))
    assert (await runtime.read_file(ReadFileRequest(path="/workspace/new/file"))).content == "é"
    with pytest.raises(FileNotFoundError):
        await runtime.read_file(ReadFileRequest(path="/workspace/none"))
    (tmp_path / "local").mkdir()
    (tmp_path / "local/file").write_text("text")
    await runtime.upload(UploadRequest(source_path=str(tmp_path / "local"), target_path="/workspace/copy"))
    assert (await runtime.read_file(ReadFileRequest(path="/workspace/copy/file"))).content == "text"


def test_the_example_repairs_a_program():
    assert printed("swerex_session") == "AssertionError: one and two are three\nthe test passes\n"
