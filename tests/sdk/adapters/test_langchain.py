"""The adapter for deepagents, beyond LangChain's own tests for sandboxes, which need an older version."""

import threading

import pytest

from stead import Stead
from stead.adapters.langchain import SteadSandbox


@pytest.fixture(scope="module")
def backend():
    with Stead.connect() as client, client.sandboxes.create() as sandbox:
        yield SteadSandbox(sandbox)


def test_commands_share_one_shell_and_files_are_read_while_it_is_busy(backend):
    backend.execute("cd /usr; export COLOR=red")
    assert backend.execute("echo $COLOR in $PWD; echo oops >&2; exit 3").output == "red in /usr\noops\n"
    backend.upload_files([("/workspace/note", b"text\n")])
    command = threading.Thread(
        target=backend.execute, args=("touch started; while [ ! -e /tmp/go ]; do sleep 0.1; done",)
    )
    command.start()
    try:
        assert backend.read("/workspace/note").file_data["content"].strip() == "text"
        assert command.is_alive()
    finally:
        backend.upload_files([("/tmp/go", b"")])
        command.join()


def test_a_command_that_takes_too_long_is_ended(backend):
    response = backend.execute("echo before; sleep 60", timeout=1)
    assert (response.exit_code, response.output) == (124, "before\nCommand timed out after 1 seconds")
