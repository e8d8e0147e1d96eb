"""Sandboxes for Inspect AI, found by it under the name `stead`.

    Task(dataset=..., solver=..., sandbox="stead")
    Task(dataset=..., solver=..., sandbox=("stead", "python:3.12"))
    Task(..., sandbox=SandboxEnvironmentSpec("stead", SteadConfig(memory="2g", egress={"deny": ["0.0.0.0/0"]})))

The server is found as `AsyncStead.connect` finds it. `stead attach ID` shows the sandbox of a sample that runs.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from collections.abc import Mapping
from typing import Any, Literal, overload

from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    sandboxenv,
)
from pydantic import BaseModel, ConfigDict

from .. import AsyncSandbox, AsyncStead, NotFound, SteadError
from ._paths import OWNER_READ, OWNER_WRITE, absolute, check_permission, os_errors
from ._programs import Programs
from ._sandboxes import create_sandbox, delete_sandbox, follow_links, write_file

_LABEL = {"framework": "inspect"}
_PERMISSION_DENIED = 126


class SteadConfig(BaseModel):
    """The settings of the sandbox of a sample, as `sandboxes.create` takes them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    image: str | None = None
    snapshot: str | None = None
    provider: str | None = None
    project_id: str | None = None
    cpus: float | None = None
    memory: str | None = None
    processes: int | None = None
    disk: str | None = None
    egress: dict[str, Any] | None = None
    env: dict[str, str] | None = None
    #: After this time a sandbox that was not cleaned up is deleted.
    timeout_s: int = 24 * 60 * 60


@sandboxenv(name="stead")
class SteadSandboxEnvironment(SandboxEnvironment):
    """The sandbox of a sample."""

    _running: dict[str, SteadSandboxEnvironment] = {}  # noqa: RUF012

    def __init__(self, client: AsyncStead, sandbox: AsyncSandbox) -> None:
        super().__init__()
        self._client = client
        self._sandbox = sandbox
        self._programs = Programs(sandbox)

    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        if isinstance(config, str):
            config = SteadConfig(image=config)
        settings = config if isinstance(config, SteadConfig) else SteadConfig()
        client = AsyncStead.connect()
        try:
            labels = {**_LABEL, "task": task_name[:63]}
            chosen = {**settings.model_dump(), "on_timeout": "destroy", "labels": labels}
            sandbox = await create_sandbox(client, chosen)
        except BaseException:
            await client.aclose()
            raise
        environment = cls(client, sandbox)
        cls._running[sandbox.sandbox_id] = environment
        return {"default": environment}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        # After an interruption, `task_cleanup` is still called and knows whether to keep sandboxes.
        if not interrupted:
            for environment in environments.values():
                await environment.as_type(SteadSandboxEnvironment)._delete()

    @classmethod
    async def task_cleanup(cls, task_name: str, config: SandboxEnvironmentConfigType | None, cleanup: bool) -> None:
        for environment in list(cls._running.values()):
            if cleanup:
                await environment._delete()
            else:
                print(f"kept sandbox {environment._sandbox.sandbox_id}: inspect sandbox cleanup stead")

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        async with AsyncStead.connect() as client:
            if id is not None:
                await delete_sandbox(client, await client.sandboxes.get(id))
                return
            async for sandbox in client.sandboxes.list(label="framework=inspect"):
                await delete_sandbox(client, sandbox)

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return SteadConfig(**config)

    async def _delete(self) -> None:
        self._running.pop(self._sandbox.sandbox_id, None)
        try:
            await delete_sandbox(self._client, self._sandbox)
        finally:
            await self._client.aclose()

    def default_polling_interval(self) -> float:
        return 0.2

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        return SandboxConnection(type="stead", command=f"stead attach {self._sandbox.thread_id}")

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Runs a program. A command that timed out is not repeated: its first attempt may have had effects."""
        limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        stdin = input.encode() if isinstance(input, str) else input or b""
        try:
            completed = await self._programs.run(
                cmd, stdin=stdin, cwd=cwd, env=env, user=user, timeout=timeout, max_output_bytes=limit
            )
        except SteadError as error:
            raise SandboxUnavailableError(str(error)) from error
        stdout, stderr = completed.text, completed.error_text
        if completed.timed_out:
            raise TimeoutError(f"{cmd[0]} has not ended after {timeout} s")
        if completed.exit_code is None:
            raise SandboxUnavailableError(f"the command is {completed.status}")
        if completed.truncated:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, stdout)
        if completed.exit_code == _PERMISSION_DENIED and "ermission denied" in stderr:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), cmd[0])
        return ExecResult(completed.exit_code == 0, completed.exit_code, stdout, stderr)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        path = absolute(file)
        with os_errors(path):
            with contextlib.suppress(NotFound):
                check_permission(await self._sandbox.files.stat(path), OWNER_WRITE, path)
            await write_file(self._sandbox, self._programs, path, contents)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        path = absolute(file)
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        with os_errors(path):
            check_permission(await self._sandbox.files.stat(path), OWNER_READ, path)
            read = functools.partial(self._sandbox.files.read, limit=limit + 1)
            content = await follow_links(self._programs, path, read)
        if len(content) > limit:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        return content.decode() if text else content
