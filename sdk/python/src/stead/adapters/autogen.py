"""A code executor for AutoGen.

    async with SteadCodeExecutor(image="python:3.12") as executor:
        agent = CodeExecutorAgent("executor", code_executor=executor)

All code blocks of one executor run in the same sandbox and see the same files.
"""

from __future__ import annotations

import asyncio
from typing import Any

from autogen_core import CancellationToken, Component
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from pydantic import BaseModel
from typing_extensions import Self

from .. import AsyncSandbox, AsyncStead
from ._programs import Programs
from ._sandboxes import create_sandbox, delete_sandbox

_INTERPRETERS = {
    "": ["/bin/sh"],
    "bash": ["/bin/bash"],
    "sh": ["/bin/sh"],
    "shell": ["/bin/sh"],
    "python": ["python3", "-"],
    "py": ["python3", "-"],
    "javascript": ["node", "-"],
    "js": ["node", "-"],
}


class SteadCodeExecutorConfig(BaseModel):
    """The settings of an executor: its limit for each block, and those of `sandboxes.create`."""

    timeout: float = 60.0
    settings: dict[str, Any] = {}


class SteadCodeExecutor(CodeExecutor, Component[SteadCodeExecutorConfig]):
    """Runs code blocks in a sandbox, which is created by `start` and deleted by `stop`."""

    component_config_schema = SteadCodeExecutorConfig
    component_provider_override = "stead.adapters.autogen.SteadCodeExecutor"

    def __init__(self, *, timeout: float = 60.0, **settings: Any) -> None:
        """`timeout` is the limit of each block, in seconds; `settings` are those of `sandboxes.create`."""
        self._timeout = timeout
        self._settings = settings
        self._client: AsyncStead | None = None
        self._sandbox: AsyncSandbox | None = None
        self._programs: Programs | None = None

    async def start(self) -> None:
        if self._sandbox is None:
            self._client = AsyncStead.connect()
            self._sandbox = await create_sandbox(self._client, self._settings)
            self._programs = Programs(self._sandbox)

    async def stop(self) -> None:
        client, sandbox = self._client, self._sandbox
        self._client = self._sandbox = self._programs = None
        if client is not None:
            try:
                if sandbox is not None:
                    await delete_sandbox(client, sandbox)
            finally:
                await client.aclose()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def execute_code_blocks(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken
    ) -> CodeResult:
        """Runs the blocks until one fails."""
        outputs: list[str] = []
        for block in code_blocks:
            task = asyncio.ensure_future(self._run(block))
            cancellation_token.link_future(task)
            code, output = await task
            outputs.append(output)
            if code != 0:
                return CodeResult(code, "".join(outputs))
        return CodeResult(0, "".join(outputs))

    async def _run(self, block: CodeBlock) -> tuple[int, str]:
        if self._programs is None:
            raise ValueError("the executor is not started")
        interpreter = _INTERPRETERS.get(block.language.lower())
        if interpreter is None:
            return 1, f"unknown language {block.language}\n"
        completed = await self._programs.run(interpreter, stdin=block.code.encode(), timeout=self._timeout)
        output = completed.text + completed.error_text
        if completed.timed_out:
            output += f"\nThe code has not ended after {self._timeout} s.\n"
        return completed.code, output

    def _to_config(self) -> SteadCodeExecutorConfig:
        return SteadCodeExecutorConfig(timeout=self._timeout, settings=self._settings)

    @classmethod
    def _from_config(cls, config: SteadCodeExecutorConfig) -> Self:
        return cls(timeout=config.timeout, **config.settings)
