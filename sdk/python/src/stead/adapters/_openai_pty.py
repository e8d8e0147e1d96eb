"""Interactive programs of a session of the OpenAI Agents SDK, each in a terminal of its own."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.pty_output import collect_pty_output
from agents.sandbox.session.pty_types import (
    PTY_PROCESSES_MAX,
    PtyExecUpdate,
    allocate_pty_process_id,
    clamp_pty_yield_time_ms,
    resolve_pty_write_yield_time_ms,
)
from agents.sandbox.types import User

from .. import AsyncSandbox, AsyncTerminal, SteadError

_FIRST_YIELD_MS = 10_000
_WRITE_YIELD_MS = 250


@dataclass
class _Program:
    terminal: AsyncTerminal
    chunks: deque[bytes] = field(default_factory=deque)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    notify: asyncio.Event = field(default_factory=asyncio.Event)
    done: bool = False
    exit_code: int | None = None
    reader: asyncio.Task[None] | None = None

    async def read(self) -> None:
        try:
            async for event in self.terminal.attach(offset=0):
                if event.kind in ("data", "snapshot"):
                    self.chunks.append(event.data)
                elif event.kind == "exit":
                    self.exit_code = event.fields.get("code")
                self.notify.set()
        except SteadError as error:
            self.chunks.append(f"\r\n[{error}]\r\n".encode())
        finally:
            self.done = True
            self.notify.set()


class PtyPrograms(BaseSandboxSession):
    """The part of a session that starts interactive programs and types into them."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._pty_sandbox = sandbox
        self._pty_programs: dict[int, _Program] = {}

    def supports_pty(self) -> bool:
        return True

    async def pty_exec_start(
        self,
        *command: str | Path,
        timeout: float | None = None,
        shell: bool | list[str] = True,
        user: str | User | None = None,
        tty: bool = False,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        if len(self._pty_programs) >= PTY_PROCESSES_MAX:
            await self._pty_end(next(iter(self._pty_programs)))
        argv = self._prepare_exec_command(*command, shell=shell, user=user)
        env: dict[str, Any] = await self.state.manifest.environment.resolve()
        terminal = await self._pty_sandbox.terminals.create(argv, cwd=self.state.manifest.root, env=env)
        program = _Program(terminal)
        program.reader = asyncio.create_task(program.read())
        number = allocate_pty_process_id(set(self._pty_programs))
        self._pty_programs[number] = program
        wait = _FIRST_YIELD_MS if yield_time_s is None else int(yield_time_s * 1000)
        return await self._pty_update(number, program, clamp_pty_yield_time_ms(wait), max_output_tokens)

    async def pty_write_stdin(
        self, *, session_id: int, chars: str, yield_time_s: float | None = None, max_output_tokens: int | None = None
    ) -> PtyExecUpdate:
        program = self._resolve_pty_session_entry(pty_processes=self._pty_programs, session_id=session_id)
        if chars:
            await program.terminal.type(chars)
        wait = _WRITE_YIELD_MS if yield_time_s is None else int(yield_time_s * 1000)
        yield_ms = resolve_pty_write_yield_time_ms(yield_time_ms=wait, input_empty=chars == "")
        return await self._pty_update(session_id, program, yield_ms, max_output_tokens)

    async def _pty_update(
        self, number: int, program: _Program, yield_ms: int, max_output_tokens: int | None
    ) -> PtyExecUpdate:
        output, tokens, closed = await collect_pty_output(
            output_chunks=program.chunks,
            output_lock=program.lock,
            output_notify=program.notify,
            is_done=lambda: program.done,
            yield_time_ms=yield_ms,
            max_output_tokens=max_output_tokens,
        )
        if closed:
            await self._pty_end(number)
        return PtyExecUpdate(None if closed else number, output, program.exit_code, tokens)

    async def _pty_end(self, number: int) -> None:
        program = self._pty_programs.pop(number)
        if program.reader is not None:
            program.reader.cancel()
            with suppress(asyncio.CancelledError):
                await program.reader
        with suppress(SteadError):
            await program.terminal.delete()

    async def pty_terminate_all(self) -> None:
        for number in list(self._pty_programs):
            await self._pty_end(number)
