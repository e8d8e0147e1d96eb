"""Programs in a sandbox that run side by side.

A thread has one live shell, which runs one command after another. Frameworks start several programs at once and expect
none of them to change the directory or the variables of the next, so each runs in a terminal of its own; terminals are
reused. The thread's default terminal, which people watch and type into, stays free.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from .._async._sandboxes import AsyncSandbox
from .._async._terminals import AsyncTerminal
from .._errors import SteadError
from .._models import Exited, Gap, Output
from .._wire import fresh_key
from ._paths import WORKSPACE

# Longer commands and inputs are sent as files.
_MAX_INLINE_BYTES = 64 << 10
_MAX_TERMINALS = 16

_RUN = 'cd -- "$1" || exit 1; shift; exec "$@"'
# The wrappers are named by absolute paths: the sandbox's `PATH` may contain directories that others can write to.
_RUN_AS = """user=$(/usr/bin/id -un -- "$1") || exit 1
cd -- "$2" || exit 1
shift 2
[ "$user" = "$(/usr/bin/id -un)" ] && exec "$@"
eval "HOME=~$user"
for runuser in /usr/sbin/runuser /sbin/runuser; do
  [ -x $runuser ] && exec $runuser -u "$user" -- "$@"
done
exec /bin/su -s /bin/sh "$user" -c 'exec "$0" "$@"' "$@"
"""


@dataclass(frozen=True, slots=True)
class Completed:
    """How a program ended, and what it wrote."""

    #: `finished`, `timed_out`, `cancelled`, `lost` or `not_started`.
    status: str
    #: 128 plus its number if a signal ended the program; `None` unless the program ended by itself.
    exit_code: int | None
    stdout: bytes
    stderr: bytes
    #: Whether output is missing because there was more than the limit.
    truncated: bool

    @property
    def timed_out(self) -> bool:
        return self.status == "timed_out"

    @property
    def code(self) -> int:
        """The exit code, or one like that of `timeout` for a program that did not end by itself."""
        return 124 if self.timed_out else -1 if self.exit_code is None else self.exit_code

    @property
    def text(self) -> str:
        return self.stdout.decode(errors="replace")

    @property
    def error_text(self) -> str:
        return self.stderr.decode(errors="replace")


class Programs:
    """Runs programs in a sandbox. Raises `NotFound` if the sandbox was deleted."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox
        self._idle: list[AsyncTerminal] = []
        self._slots = asyncio.Semaphore(_MAX_TERMINALS)
        self._deletions: set[asyncio.Task[None]] = set()

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | int | None = None,
        timeout: float | None = None,
        max_output_bytes: int = 16 << 20,
    ) -> Completed:
        """Runs a program and waits for its end.

        After `timeout` seconds, or if the caller is cancelled, the program and its processes are ended. A `cwd` that
        is not absolute is below the workspace.
        """
        directory = cwd or "."
        if user is None:
            parts = ["/bin/sh", "-c", _RUN, "sh", directory, *argv]
        else:
            parts = ["/bin/sh", "-c", _RUN_AS, "sh", str(user), directory, *argv]
        command = shlex.join(parts)
        files: list[str] = []
        inline: str | None = None
        try:
            if len(command) > _MAX_INLINE_BYTES:
                command = f"/bin/sh ./{await self._file(f'exec {command}'.encode(), files)}"
            with suppress(UnicodeDecodeError):
                inline = stdin.decode() if len(stdin) <= _MAX_INLINE_BYTES else None
            if inline is None:
                command = f"{command} <{await self._file(stdin, files)}"
            return await self._run(command, inline, env, timeout, max_output_bytes)
        finally:
            for path in files:
                with suppress(SteadError):
                    await self._sandbox.files.remove(path)

    async def _file(self, content: bytes, files: list[str]) -> str:
        """Writes a temporary file; returns its path relative to the directory in which terminals start."""
        name = f".stead-{fresh_key()}"
        files.append(f"{WORKSPACE}/{name}")
        await self._sandbox.files.write(f"{WORKSPACE}/{name}", content)
        return name

    async def _run(
        self, command: str, stdin: str | None, env: Mapping[str, str] | None, timeout: float | None, limit: int
    ) -> Completed:
        async with self._slots:
            terminal = self._idle.pop() if self._idle else await self._terminal()
            try:
                completed = await self._collect(terminal, command, stdin, env, timeout, limit)
            except BaseException:
                # Also ends a program whose id is not known because the caller was cancelled before it arrived.
                task = asyncio.ensure_future(terminal.delete())
                self._deletions.add(task)
                task.add_done_callback(self._deleted)
                raise
            self._idle.append(terminal)
            return completed

    async def _terminal(self) -> AsyncTerminal:
        # Creating a terminal in a thread creates the thread, also one with the id of a deleted sandbox.
        await self._sandbox.refresh()
        return await self._sandbox.terminals.create(cwd=WORKSPACE)

    def _deleted(self, task: asyncio.Task[None]) -> None:
        self._deletions.discard(task)
        if not task.cancelled():
            # A terminal that cannot be deleted is deleted with its sandbox.
            task.exception()

    async def _collect(
        self,
        terminal: AsyncTerminal,
        command: str,
        stdin: str | None,
        env: Mapping[str, str] | None,
        timeout: float | None,
        limit: int,
    ) -> Completed:
        written = {"stdout": bytearray(), "stderr": bytearray()}
        truncated = False
        async with terminal.exec_stream(command, stdin=stdin, env=env, timeout=timeout) as events:
            async for event in events:
                if isinstance(event, Output):
                    room = limit - len(written[event.stream])
                    written[event.stream] += event.data[:room]
                    truncated = truncated or len(event.data) > room
                elif isinstance(event, Gap):
                    truncated = True
                elif isinstance(event, Exited):
                    result = event.result
        return Completed(result.status, result.exit_code, bytes(written["stdout"]), bytes(written["stderr"]), truncated)

    async def close(self) -> None:
        """Deletes the terminals and waits for deletions that are under way."""
        terminals, self._idle = self._idle, []
        for terminal in terminals:
            with suppress(SteadError):
                await terminal.delete()
        while self._deletions:
            await asyncio.wait(self._deletions)
