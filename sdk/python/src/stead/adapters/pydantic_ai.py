"""Workspaces for Pydantic AI.

    from stead.adapters.pydantic_ai import SteadWorkspace

    workspace = SteadWorkspace(image="python:3.12")
    result = await agent.run("...", workspace=workspace)
    ...
    later = SteadWorkspace(ref=workspace.ref)  # in another process, on another day

The first operation creates the sandbox. It is never deleted by a run: `await workspace.delete()` does that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from pydantic_ai.workspaces import (
    CommandResult,
    FileEntry,
    WorkspaceCommand,
    WorkspaceOutputLimitError,
    WorkspaceRef,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)
from pydantic_ai.workspaces.protocol import validate_timeout

from .. import AsyncSandbox, AsyncStead, FileInfo, NotFound
from ._paths import OWNER_READ, OWNER_WRITE, check_permission, os_errors
from ._programs import Programs
from ._sandboxes import create_sandbox, delete_sandbox, follow_links, write_file

PROVIDER = "stead"
_MAX_OUTPUT_BYTES = 16 << 20


class SteadWorkspace:
    """A sandbox as a workspace backend."""

    def __init__(self, *, client: AsyncStead | None = None, ref: WorkspaceRef | None = None, **settings: Any) -> None:
        """`settings` are those of `sandboxes.create`; with a `ref`, the sandbox must exist."""
        if ref is not None and ref.provider != PROVIDER:
            raise ValueError(f"the workspace belongs to {ref.provider!r}")
        self._client = client or AsyncStead.connect()
        self._ref = ref
        self._settings = settings
        self._opening: asyncio.Task[tuple[AsyncSandbox, Programs, str]] | None = None

    @property
    def ref(self) -> WorkspaceRef | None:
        return self._ref

    async def _open(self) -> tuple[AsyncSandbox, Programs, str]:
        if self._opening is None or (self._opening.done() and self._opening.exception() is not None):
            self._opening = asyncio.create_task(self._create())
        # A caller that is cancelled does not cancel the creation that others wait for.
        return await asyncio.shield(self._opening)

    async def _create(self) -> tuple[AsyncSandbox, Programs, str]:
        if self._ref is not None:
            try:
                sandbox = await self._client.sandboxes.get(self._ref.id)
            except NotFound as error:
                raise WorkspaceUnavailableError(error.detail) from error
        else:
            sandbox = await create_sandbox(self._client, self._settings)
            self._ref = WorkspaceRef(provider=PROVIDER, id=sandbox.sandbox_id)
        programs = Programs(sandbox)
        directory = (await programs.run(["pwd", "-P"])).text.removesuffix("\n")
        return sandbox, programs, directory

    @asynccontextmanager
    async def _files(self, path: str) -> AsyncIterator[AsyncSandbox]:
        """Yields the sandbox, and raises its errors as Python's own."""
        sandbox, _, _ = await self._open()
        try:
            with os_errors(path):
                yield sandbox
        except FileNotFoundError:
            await self._check_alive(sandbox)
            raise

    async def _check_alive(self, sandbox: AsyncSandbox) -> None:
        try:
            await sandbox.refresh()
        except NotFound as error:
            raise WorkspaceUnavailableError(error.detail) from error

    async def working_dir(self) -> str:
        return (await self._open())[2]

    async def run(
        self,
        command: WorkspaceCommand,
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        if isinstance(command, str) != shell:
            raise TypeError("a command is a string with shell=True, and a sequence of strings otherwise")
        validate_timeout(timeout)
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else command
        sandbox, programs, _ = await self._open()
        try:
            completed = await programs.run(argv, env=env, timeout=timeout, max_output_bytes=_MAX_OUTPUT_BYTES)
        except NotFound as error:
            await self._check_alive(sandbox)
            raise WorkspaceUnavailableError(error.detail) from error
        stdout, stderr = completed.text, completed.error_text
        if completed.timed_out:
            raise WorkspaceTimeoutError(f"the command has not ended after {timeout} s", stdout=stdout, stderr=stderr)
        if completed.exit_code is None:
            raise WorkspaceUnavailableError(f"the command is {completed.status}")
        # Deleting a sandbox can look like a signal to its programs.
        if completed.exit_code > 128:
            await self._check_alive(sandbox)
        if completed.truncated:
            message = f"the output has more than {_MAX_OUTPUT_BYTES} bytes"
            raise WorkspaceOutputLimitError(message, limit=_MAX_OUTPUT_BYTES, stdout=stdout, stderr=stderr)
        return CommandResult(exit_code=completed.exit_code, stdout=stdout, stderr=stderr)

    async def read_bytes(self, path: str) -> bytes:
        async with self._files(path) as sandbox:
            check_permission(await sandbox.files.stat(path), OWNER_READ, path)
            return await follow_links((await self._open())[1], path, sandbox.files.read)

    async def write_bytes(self, path: str, data: bytes) -> None:
        async with self._files(path) as sandbox:
            with suppress(NotFound):
                check_permission(await sandbox.files.stat(path), OWNER_WRITE, path)
            await write_file(sandbox, (await self._open())[1], path, data)

    async def stat(self, path: str) -> FileEntry:
        async with self._files(path) as sandbox:
            return (await self._entries([await sandbox.files.stat(path)]))[0]

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        async with self._files(path) as sandbox:
            return await self._entries([info async for info in sandbox.files.list(path)])

    async def _entries(self, infos: list[FileInfo]) -> list[FileEntry]:
        links = [info.path for info in infos if info.type == "link"]
        directories = {info.path for info in infos if info.type == "directory"}
        if links:
            _, programs, _ = await self._open()
            script = 'for path; do [ -d "$path" ] && echo yes || echo no; done'
            answers = (await programs.run(["/bin/sh", "-c", script, "sh", *links])).text.split()
            directories |= {path for path, answer in zip(links, answers, strict=True) if answer == "yes"}
        return [
            FileEntry(
                name=info.name,
                path=info.path,
                is_dir=info.path in directories,
                size=info.size if info.type == "file" else None,
            )
            for info in infos
        ]

    async def make_dir(self, path: str) -> None:
        async with self._files(path) as sandbox:
            try:
                with os_errors(path):
                    await sandbox.files.mkdir(path)
            except NotADirectoryError:
                # The server does not say whether the path itself or one of its parents is a file.
                if await sandbox.files.exists(path):
                    raise FileExistsError(path) from None
                raise

    async def remove(self, path: str) -> None:
        directory = await self.working_dir()
        if f"{directory}/".startswith(f"{path.rstrip('/')}/"):
            raise ValueError(f"{path} contains the working directory")
        async with self._files(path) as sandbox:
            await sandbox.files.remove(path, recursive=True)

    async def exists(self, path: str) -> bool:
        try:
            async with self._files(path) as sandbox:
                await sandbox.files.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    async def delete(self) -> None:
        """Deletes the sandbox with its files."""
        if self._ref is not None:
            await delete_sandbox(self._client, await self._client.sandboxes.get(self._ref.id))

    async def close(self) -> None:
        """Closes the connections. The sandbox keeps running."""
        await self._client.aclose()
