"""A deployment and a runtime for SWE-ReX, on which SWE-agent runs.

    deployment = SteadDeployment(image="python:3.12")
    await deployment.start()
    await deployment.runtime.create_session(CreateBashSessionRequest())
    await deployment.runtime.run_in_session(BashAction(command="cd /repo"))

Each session is a durable terminal: `stead attach` shows it, and it keeps its state if the server restarts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from swerex import exceptions
from swerex.deployment.abstract import AbstractDeployment
from swerex.deployment.hooks.abstract import CombinedDeploymentHook, DeploymentHook
from swerex.runtime.abstract import (
    AbstractRuntime,
    BashAction,
    BashInterruptAction,
    BashObservation,
    CloseBashSessionRequest,
    CloseBashSessionResponse,
    CloseResponse,
    Command,
    CommandResponse,
    CreateBashSessionRequest,
    CreateBashSessionResponse,
    IsAliveResponse,
    ReadFileRequest,
    ReadFileResponse,
    UploadRequest,
    UploadResponse,
    WriteFileRequest,
    WriteFileResponse,
)
from swerex.utils.log import get_logger

from .. import PROMPT, AsyncSandbox, AsyncStead, AsyncTerminal, SteadError, Timeout
from ._paths import absolute, os_errors
from ._programs import Programs
from ._sandboxes import create_sandbox, delete_sandbox, write_file


class SteadRuntime(AbstractRuntime):
    """Sessions, commands and files in one sandbox."""

    def __init__(self, sandbox: AsyncSandbox, *, logger: logging.Logger | None = None) -> None:
        self.logger = logger or get_logger("rex-runtime")
        self._sandbox = sandbox
        self._programs = Programs(sandbox)
        self._sessions: dict[str, AsyncTerminal] = {}

    async def is_alive(self, *, timeout: float | None = None) -> IsAliveResponse:
        try:
            await asyncio.wait_for(self._sandbox.refresh(), timeout)
        except (SteadError, TimeoutError, asyncio.TimeoutError) as error:
            return IsAliveResponse(is_alive=False, message=str(error))
        return IsAliveResponse(is_alive=True)

    async def create_session(self, request: CreateBashSessionRequest) -> CreateBashSessionResponse:
        if request.session in self._sessions:
            raise exceptions.SessionExistsError(f"session {request.session!r} already exists")
        terminal = await self._sandbox.terminals.create(shell="bash")
        self._sessions[request.session] = terminal
        outputs = [(await terminal.exec(f"source {path}")).stdout for path in request.startup_source]
        return CreateBashSessionResponse(output="".join(outputs))

    def _session(self, name: str) -> AsyncTerminal:
        if name not in self._sessions:
            raise exceptions.SessionDoesNotExistError(f"session {name!r} does not exist")
        return self._sessions[name]

    async def run_in_session(self, action: BashAction | BashInterruptAction) -> BashObservation:
        terminal = self._session(action.session)
        if isinstance(action, BashInterruptAction):
            await terminal.type("\x03")
            return BashObservation(exit_code=0)
        if action.is_interactive_command or action.is_interactive_quit:
            return await self._type(terminal, action)
        # Both streams in the order in which they were written. The newline ends comments and here-documents.
        result = await terminal.exec(f"{{ {action.command}\n}} 2>&1", timeout=action.timeout)
        # A syntax error is reported by the shell itself, outside of the braces.
        output = result.stdout + result.stderr
        if result.timed_out:
            raise exceptions.CommandTimeoutError(f"{action.command!r} has not ended after {action.timeout} s")
        if action.check == "raise" and result.exit_code != 0:
            reason = f"command {action.command!r} exited with {result.exit_code}: {output!r}"
            raise exceptions.NonZeroExitCodeError(f"{action.error_msg}: {reason}" if action.error_msg else reason)
        return BashObservation(output=output, exit_code=None if action.check == "ignore" else result.exit_code)

    async def _type(self, terminal: AsyncTerminal, action: BashAction) -> BashObservation:
        """Types a line into the program that reads the terminal, and waits for what it is expected to print."""
        start = (await terminal.info()).offset
        await terminal.type(f"{action.command}\r")
        try:
            if not action.expect:
                screen = await terminal.wait_for(PROMPT, timeout=action.timeout or 30)
                return BashObservation(output=screen, exit_code=0)
            return await asyncio.wait_for(_expect(terminal.attach(offset=start), action), action.timeout)
        except (Timeout, asyncio.TimeoutError) as error:
            message = f"{action.command!r} has not printed {action.expect} after {action.timeout} s"
            raise exceptions.CommandTimeoutError(message) from error

    async def close_session(self, request: CloseBashSessionRequest) -> CloseBashSessionResponse:
        await self._session(request.session).delete()
        del self._sessions[request.session]
        return CloseBashSessionResponse()

    async def execute(self, command: Command) -> CommandResponse:
        if isinstance(command.command, str):
            argv = ["/bin/sh", "-c", command.command] if command.shell else [command.command]
        else:
            argv = ["/bin/sh", "-c", *command.command] if command.shell else command.command
        if command.merge_output_streams:
            argv = ["/bin/sh", "-c", 'exec "$@" 2>&1', "sh", *argv]
        completed = await self._programs.run(argv, cwd=command.cwd, env=command.env, timeout=command.timeout)
        if completed.timed_out:
            raise exceptions.CommandTimeoutError(f"{command.command!r} has not ended after {command.timeout} s")
        if command.check and completed.exit_code != 0:
            reason = f"command {command.command!r} exited with {completed.exit_code}: {completed.error_text!r}"
            raise exceptions.NonZeroExitCodeError(f"{command.error_msg}: {reason}" if command.error_msg else reason)
        return CommandResponse(stdout=completed.text, stderr=completed.error_text, exit_code=completed.exit_code)

    async def read_file(self, request: ReadFileRequest) -> ReadFileResponse:
        path = absolute(request.path)
        with os_errors(path):
            content = await self._sandbox.files.read(path)
        return ReadFileResponse(content=content.decode(request.encoding or "utf-8", request.errors or "strict"))

    async def write_file(self, request: WriteFileRequest) -> WriteFileResponse:
        path = absolute(request.path)
        with os_errors(path):
            await write_file(self._sandbox, self._programs, path, request.content)
        return WriteFileResponse()

    async def upload(self, request: UploadRequest) -> UploadResponse:
        source, target = Path(request.source_path), absolute(request.target_path)
        for file in [source] if source.is_file() else [one for one in source.rglob("*") if one.is_file()]:
            path = target if source.is_file() else absolute(file.relative_to(source), target)
            await write_file(self._sandbox, self._programs, path, await asyncio.to_thread(file.read_bytes))
        return UploadResponse()

    async def close(self) -> CloseResponse:
        await self._programs.close()
        for name in list(self._sessions):
            await self.close_session(CloseBashSessionRequest(session=name))
        return CloseResponse()


async def _expect(events: AsyncIterator[Any], action: BashAction) -> BashObservation:
    output = ""
    async for event in events:
        output += event.data.decode(errors="replace")
        # The terminal echoes what was typed.
        printed = output.replace("\r\n", "\n").removeprefix(action.command).lstrip("\n")
        for text in action.expect:
            if text in printed:
                return BashObservation(output=printed.partition(text)[0].strip(), exit_code=0, expect_string=text)
    return BashObservation(output=output, exit_code=None, failure_reason="the program ended")


class SteadDeployment(AbstractDeployment):
    """A sandbox that `start` creates and `stop` deletes."""

    def __init__(self, *, logger: logging.Logger | None = None, **settings: Any) -> None:
        """`settings` are those of `sandboxes.create`."""
        self.logger = logger or get_logger("rex-deploy")
        self._settings = settings
        self._hooks = CombinedDeploymentHook()
        self._client: AsyncStead | None = None
        self._sandbox: AsyncSandbox | None = None
        self._runtime: SteadRuntime | None = None

    def add_hook(self, hook: DeploymentHook) -> None:
        self._hooks.add_hook(hook)

    @property
    def runtime(self) -> SteadRuntime:
        if self._runtime is None:
            raise exceptions.DeploymentNotStartedError
        return self._runtime

    async def is_alive(self, *, timeout: float | None = None) -> IsAliveResponse:
        return await self.runtime.is_alive(timeout=timeout)

    async def start(self, *_: Any, **__: Any) -> None:
        self._hooks.on_custom_step("Creating sandbox")
        self._client = AsyncStead.connect()
        self._sandbox = await create_sandbox(self._client, self._settings)
        self._runtime = SteadRuntime(self._sandbox, logger=self.logger)

    async def stop(self, *_: Any, **__: Any) -> None:
        client, sandbox = self._client, self._sandbox
        self._client = self._sandbox = self._runtime = None
        if client is not None:
            try:
                if sandbox is not None:
                    await delete_sandbox(client, sandbox)
            finally:
                await client.aclose()
