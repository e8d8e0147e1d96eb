"""Sandboxes for LangChain's deepagents.

    from deepagents import create_deep_agent
    from stead import Stead
    from stead.adapters.langchain import SteadSandbox

    sandbox = Stead.connect().sandboxes.create("research")
    agent = create_deep_agent(model=..., backend=SteadSandbox(sandbox))

Commands of the agent run in the sandbox's live shell, which keeps its directory and variables, and which people can
watch and use. Reading, listing and searching files uses a second terminal, so that the agent can do so while a command
or a person occupies the shell.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
from deepagents.backends.sandbox import BaseSandbox

from .. import NotFound, Sandbox, SteadError, Terminal, Thread
from ._paths import OWNER_READ, OWNER_WRITE, WORKSPACE, check_permission, os_errors

TIMEOUT_EXIT_CODE = 124


class _Commands(BaseSandbox):
    """Commands in a shell, and files of its sandbox."""

    def __init__(self, sandbox: Sandbox | Thread, timeout: float) -> None:
        self._sandbox = sandbox
        self._timeout = timeout
        self._aside: Terminal | None = None

    @property
    def id(self) -> str:
        return self._sandbox.thread_id

    def _shell(self) -> Thread | Terminal:
        if isinstance(self._sandbox, Sandbox):
            # By its id, because a command in a thread creates the thread, also one of a deleted sandbox.
            return Terminal(self._sandbox._http, self._sandbox.info.terminal_id)
        return self._sandbox

    def _terminal(self) -> Terminal:
        """Returns a terminal beside the live shell, whose directory is the workspace."""
        if self._aside is None:
            self._aside = self._sandbox.terminals.create(cwd=WORKSPACE)
        return self._aside

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a command. Standard error follows standard output."""
        limit = self._timeout if timeout is None else timeout
        if limit < 0:
            raise ValueError(f"timeout must not be negative, got {limit}")
        # A timeout of 0 means none.
        result = self._shell().exec(command, timeout=limit or None)
        separator = "\n" if result.stdout and result.stderr and not result.stdout.endswith("\n") else ""
        output = f"{result.stdout}{separator}{result.stderr}"
        if result.timed_out:
            return ExecuteResponse(f"{output}Command timed out after {limit} seconds", TIMEOUT_EXIT_CODE)
        return ExecuteResponse(output, result.exit_code, result.truncated)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return [FileUploadResponse(path, _error_of(path, self._write, path, content)) for path, content in files]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        responses = []
        for path in paths:
            content: list[bytes] = []
            error = _error_of(path, self._read, path, content)
            responses.append(FileDownloadResponse(path, content[0] if content else None, error))
        return responses

    def _write(self, path: str, content: bytes) -> None:
        with suppress(NotFound):
            check_permission(self._sandbox.files.stat(path), OWNER_WRITE, path)
        self._sandbox.files.write(path, content)

    def _read(self, path: str, content: list[bytes]) -> None:
        check_permission(self._sandbox.files.stat(path), OWNER_READ, path)
        content.append(self._sandbox.files.read(path))


class _FileCommands(_Commands):
    """The commands with which deepagents lists, reads, edits and searches files."""

    def _shell(self) -> Terminal:
        return self._terminal()


class SteadSandbox(_Commands):
    """A sandbox, or a thread, as a backend of deepagents."""

    def __init__(self, sandbox: Sandbox | Thread, *, timeout: float = 30 * 60) -> None:
        """`timeout` is the limit, in seconds, of commands for which the agent gives none."""
        super().__init__(sandbox, timeout)
        self._file_commands = _FileCommands(sandbox, timeout)


def _error_of(path: str, call: Callable[..., None], *arguments: Any) -> str | None:
    """Calls a function and returns the name that deepagents has for its error."""
    if not path.startswith("/"):
        return "invalid_path"
    try:
        with os_errors(path):
            call(*arguments)
    except FileNotFoundError:
        return "file_not_found"
    except IsADirectoryError:
        return "is_directory"
    except PermissionError:
        return "permission_denied"
    except (NotADirectoryError, FileExistsError):
        return "invalid_path"
    except (OSError, SteadError) as error:
        return str(error)
    return None


def _delegate(name: str) -> Callable[..., Any]:
    @functools.wraps(getattr(BaseSandbox, name))
    def method(self: SteadSandbox, *arguments: Any, **options: Any) -> Any:
        return getattr(self._file_commands, name)(*arguments, **options)

    return method


for _operation in ("ls", "read", "write", "edit", "delete", "grep", "glob"):
    # Older versions of deepagents have no `delete`.
    for _name in (_operation, f"a{_operation}"):
        if hasattr(BaseSandbox, _name):
            setattr(SteadSandbox, _name, _delegate(_name))
