"""Terminals: the screen and the keyboard of a shell, and the versions of its state."""

from __future__ import annotations

import asyncio
import base64
import re
import time as clock
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal, overload

from .._errors import Timeout
from .._exec import exec_body
from .._models import (
    CommandInfo,
    ExecResult,
    Screen,
    TerminalEvent,
    TerminalInfo,
    TerminalState,
    Version,
    VersionDetail,
)
from .._output import event_bytes
from .._prompt import Prompt
from .._wire import fresh_key, given, segment
from ._commands import AsyncCommand
from ._http import AsyncHttp

_FIRST_POLL_SECONDS = 0.01
_MAX_POLL_SECONDS = 0.2
# How many commands are searched for the one that was typed last.
_RECENT_COMMANDS = 20


class AsyncShell:
    """What a thread, a sandbox and a terminal have in common: commands in one live shell."""

    _http: AsyncHttp

    def _exec_path(self) -> str:
        raise NotImplementedError

    async def exec(
        self,
        command: str,
        *,
        timeout: float | None = None,
        stdin: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        max_output_bytes: int | None = None,
        if_busy: Literal["wait", "fail"] | None = None,
        resume: bool | None = None,
        key: str | None = None,
    ) -> ExecResult:
        """Runs a command in the shell and waits for its end.

        The shell keeps its state between commands: directory, variables, functions. After `timeout` seconds the
        command and its processes are ended. `env` and `cwd` apply to this command alone. The result has up to
        `max_output_bytes` of each stream (1 MiB by default, 64 MiB at most). If another command is running this one
        waits, or raises `Busy` with `if_busy="fail"`.

        A broken connection or a restarted server does not run the command twice: requests have an idempotency key.
        With a `key` of your own, the same call in a later process returns the same result, for a day.

        >>> shell = client.thread("docs")
        >>> result = await shell.exec("echo hello; echo oops >&2; false")
        >>> result.exit_code, result.stdout, result.stderr
        (1, 'hello\\n', 'oops\\n')
        >>> _ = await shell.exec("cd /tmp; export COLOR=red")
        >>> (await shell.exec("echo $COLOR in $PWD")).stdout
        'red in /tmp\\n'
        >>> (await shell.exec("sleep 60", timeout=0.1)).timed_out
        True
        """
        body = exec_body(command, timeout, stdin, env, cwd, max_output_bytes, if_busy, resume)
        reply = await self._http.post(self._exec_path(), body, key=key, wait_forever=True)
        return ExecResult.from_json(reply)

    def exec_stream(
        self,
        command: str,
        *,
        timeout: float | None = None,
        stdin: str | None = None,
        open_stdin: bool = False,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        max_output_bytes: int | None = None,
        if_busy: Literal["wait", "fail"] | None = None,
        resume: bool | None = None,
        key: str | None = None,
    ) -> AsyncCommand:
        """Returns a command whose events are received as they happen. Iterating over it starts it.

        Each stream arrives in order; the order between the two is not defined. With `open_stdin`, standard input stays
        open for `write_stdin`. The server keeps 104 MiB of each stream, the first
        8 MiB (or `max_output_bytes`, 64 MiB at most) and the rest from the end: a program that falls behind by more
        than that receives a `Gap`.

        >>> async for event in client.thread("docs").exec_stream("echo one; sleep 0.1; echo two"):
        ...     if isinstance(event, Output):
        ...         print(event.text, end="")
        ...     elif isinstance(event, Exited):
        ...         print("exit code", event.result.exit_code)
        one
        two
        exit code 0
        """
        body = exec_body(command, timeout, stdin, env, cwd, max_output_bytes, if_busy, resume)
        # A repeated request then returns at once, with the id of the command.
        body["yield_ms"] = 0
        if stdin is None and not open_stdin:
            body["stdin"] = ""
        return AsyncCommand(self._http, path=self._exec_path(), body=body, key=key)

    async def start(
        self,
        command: str,
        *,
        timeout: float | None = None,
        stdin: str | None = None,
        open_stdin: bool = False,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        max_output_bytes: int | None = None,
        if_busy: Literal["wait", "fail"] | None = None,
        resume: bool | None = None,
        key: str | None = None,
    ) -> AsyncCommand:
        """Starts a command and returns at once. The command outlives this program.

        >>> command = await client.thread("docs").start("read name; echo hello $name", open_stdin=True)
        >>> await command.write_stdin("world\\n")
        >>> (await command.wait()).stdout
        'hello world\\n'
        """
        started = self.exec_stream(
            command,
            timeout=timeout,
            stdin=stdin,
            open_stdin=open_stdin,
            env=env,
            cwd=cwd,
            max_output_bytes=max_output_bytes,
            if_busy=if_busy,
            resume=resume,
            key=key,
        )
        await started._start()
        return started


class AsyncTerminal(AsyncShell):
    """A terminal. People and programs use the same one: what is typed here is visible to every attached client."""

    def __init__(self, http: AsyncHttp, terminal_id: str) -> None:
        self._http = http
        self.terminal_id = terminal_id
        self._base = f"/api/terminals/{segment(terminal_id)}"
        self._typed_before: str | None = None
        self._has_typed = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.terminal_id!r})"

    def _exec_path(self) -> str:
        return f"{self._base}/exec"

    async def info(self) -> TerminalInfo:
        """Returns the terminal's size, directory, version and live state."""
        return TerminalInfo.from_json(await self._http.get(self._base))

    async def delete(self) -> None:
        """Ends the terminal's programs and deletes it."""
        await self._http.delete(self._base)

    async def type(self, text: str | bytes) -> None:
        """Types into the terminal, exactly once. Enter is `\\r`, Ctrl-C is `\\x03`."""
        raw = text.encode() if isinstance(text, str) else text
        if re.search(rb"\S.*[\r\n]", raw):
            self._typed_before = await self._last_typed()
            self._has_typed = True
        body = {"data_base64": base64.b64encode(raw).decode(), "write_id": fresh_key()}
        await self._http.post(f"{self._base}/input", body, keyed=False)

    @overload
    async def screen(self, *, format: Literal["text", "html"] = ..., scrollback: int | None = ...) -> str: ...

    @overload
    async def screen(self, *, format: Literal["ansi"], scrollback: int | None = ...) -> Screen: ...

    async def screen(
        self, *, format: Literal["text", "html", "ansi"] = "text", scrollback: int | None = None
    ) -> str | Screen:
        """Returns what is on the screen: as text, as HTML, or with its escape sequences, cursor and offset.

        `scrollback` adds lines above the screen.
        """
        params = {"format": format, "scrollback": scrollback}
        reply = await self._http.request("GET", f"{self._base}/snapshot", params=params)
        return Screen.from_json(reply.json()) if format == "ansi" else reply.body.decode()

    async def wait_for(self, what: str | re.Pattern[str] | Prompt, *, timeout: float = 30.0) -> str:
        """Waits until the screen shows a text or matches a pattern, or until the shell is back at its `PROMPT`;
        returns the screen.

        Text that was typed is on the screen, too: wait for what a program prints. `PROMPT` waits for the end of the
        line that this object typed last. Raises `Timeout` after `timeout` seconds.

        >>> terminal = await client.thread("docs").terminal()
        >>> await terminal.type("python3 -q\\r")
        >>> _ = await terminal.wait_for(">>>")
        >>> await terminal.type("6 * 7\\r")
        >>> "42" in await terminal.wait_for("42")
        True
        >>> await terminal.type("exit()\\r")
        >>> _ = await terminal.wait_for(PROMPT)
        """
        deadline = clock.monotonic() + timeout
        poll = _FIRST_POLL_SECONDS
        while True:
            if isinstance(what, Prompt):
                if await self._at_prompt():
                    return await self.screen()
            else:
                screen = await self.screen()
                found = what in screen if isinstance(what, str) else what.search(screen) is not None
                if found:
                    return screen
            if clock.monotonic() + poll > deadline:
                seen = await self.screen()
                raise Timeout(f"{what!r} is not on the screen after {timeout} s:\n{seen}")
            await asyncio.sleep(poll)
            poll = min(poll * 2, _MAX_POLL_SECONDS)

    async def _last_typed(self) -> str | None:
        """Returns the id of the latest command that was typed and has ended."""
        page = await self._http.get(f"{self._base}/commands", {"limit": _RECENT_COMMANDS})
        typed = (item["command_id"] for item in page["items"] if item["source"] == "person")
        return next(typed, None)

    async def _at_prompt(self) -> bool:
        if self._has_typed and await self._last_typed() == self._typed_before:
            return False
        # Shells enable bracketed paste while they read a line, and disable it before they run one.
        return "\x1b[?2004h" in (await self.screen(format="ansi")).data

    async def attach(self, *, offset: int | None = None) -> AsyncIterator[TerminalEvent]:
        """Yields the screen, then everything that happens on it, until its program exits.

        Starts after an `offset` instead, if the server still has the output since then. Continues after a broken
        connection without a repetition; if it was down for too long, another `snapshot` follows.

        >>> terminal = await client.thread("docs").terminal()
        >>> await terminal.type("echo attached\\r")
        >>> output = b""
        >>> async for event in terminal.attach(offset=0):
        ...     output += event.data
        ...     if b"attached" in output:
        ...         break
        """
        last = None if offset is None else str(offset)
        async for event in self._http.subscribe(f"{self._base}/stream", {"mode": "viewer"}, last):
            if event.name == "reconnected":
                continue
            yield TerminalEvent(event.name, event_bytes(event.data), event.data.get("offset"), event.data)
            if event.name == "exit":
                return

    async def resize(self, cols: int, rows: int) -> None:
        """Changes the size of the terminal."""
        await self._http.post(f"{self._base}/resize", {"cols": cols, "rows": rows})

    async def signal(self, name: str) -> None:
        """Sends a signal, such as `INT`, to the program in the foreground."""
        await self._http.post(f"{self._base}/signal", {"signal": name})

    async def set_env(self, variables: Mapping[str, str] | None = None, *, unset: Sequence[str] = ()) -> TerminalState:
        """Sets and removes exported variables in the live shell."""
        body = {"set": dict(variables or {}), "unset": list(unset)}
        return TerminalState.from_json(await self._http.send_json("PATCH", f"{self._base}/env", body))

    async def history(self, contains: str | None = None) -> AsyncIterator[CommandInfo]:
        """Yields the commands of the terminal, newest first: those of agents and those that people typed."""
        async for item in self._http.pages(f"{self._base}/commands", {"q": contains}):
            yield CommandInfo.from_json(item)

    async def versions(self) -> AsyncIterator[Version]:
        """Yields the versions of the shell's state, newest first."""
        async for item in self._http.pages(f"{self._base}/versions"):
            yield Version.from_json(item)

    async def version(self, version: int, *, since: int | None = None) -> VersionDetail:
        """Returns the content of a version, or only its differences from the version `since`."""
        path = f"{self._base}/versions/{version}"
        return VersionDetail.from_json(await self._http.get(path, {"since": since}))

    async def rollback(self, version: int) -> TerminalState:
        """Restores an earlier version of the shell's state, which becomes a new version. Files are not changed.

        >>> terminal = await client.thread("docs").terminal()
        >>> before = (await terminal.exec("cd /usr")).version
        >>> _ = await terminal.exec("cd /tmp; export BROKEN=1")
        >>> _ = await terminal.rollback(before)
        >>> (await terminal.exec("echo $PWD ${BROKEN:-unset}")).stdout
        '/usr unset\\n'
        """
        return TerminalState.from_json(await self._http.post(f"{self._base}/rollback", {"version": version}))

    async def fork(self, version: int | None = None) -> AsyncTerminal:
        """Creates a terminal in the same thread whose shell starts from the state of this one.

        >>> terminal = await client.thread("docs").terminal()
        >>> _ = await terminal.exec("cd /usr; export STEP=1")
        >>> other = await terminal.fork()
        >>> (await other.exec("echo $STEP in $PWD")).stdout
        '1 in /usr\\n'
        """
        created = await self._http.post(f"{self._base}/fork", given(version=version))
        return AsyncTerminal(self._http, created["terminal_id"])


class AsyncTerminals:
    """The terminals of all threads, or of one."""

    def __init__(self, http: AsyncHttp, thread_id: str | None = None) -> None:
        self._http = http
        self._thread_id = thread_id

    async def get(self, terminal_id: str) -> AsyncTerminal:
        """Returns a terminal; raises `NotFound` if it does not exist."""
        terminal = AsyncTerminal(self._http, terminal_id)
        await terminal.info()
        return terminal

    async def list(self, *, status: str | None = None) -> AsyncIterator[TerminalInfo]:
        """Yields the terminals, optionally only those that are `live`, `exited` or `restorable`."""
        params: dict[str, Any] = {"thread_id": self._thread_id, "status": status}
        async for item in self._http.pages("/api/terminals", params):
            yield TerminalInfo.from_json(item)


class AsyncThreadTerminals(AsyncTerminals):
    """The terminals of a thread."""

    def __init__(self, http: AsyncHttp, thread_id: str) -> None:
        super().__init__(http, thread_id)
        self._path = f"/api/threads/{segment(thread_id)}/terminals"

    async def create(
        self,
        cmd: Sequence[str] | None = None,
        *,
        cols: int | None = None,
        rows: int | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        shell: Literal["bash", "zsh", "sh"] | None = None,
    ) -> AsyncTerminal:
        """Creates another terminal, with a shell or with a program that it ends with.

        >>> terminal = await client.thread("docs").terminals.create(["cat"], cols=40, rows=5)
        >>> await terminal.type("meow\\r")
        >>> "meow" in await terminal.wait_for("meow")
        True
        """
        body = given(cmd=list(cmd) if cmd else None, cols=cols, rows=rows, cwd=cwd, env=env, shell=shell)
        created = await self._http.post(self._path, body)
        return AsyncTerminal(self._http, created["terminal_id"])
