# Generated from _async/_terminals.py by tools/unasync.py. Do not edit.
"""Terminals: the screen and the keyboard of a shell, and the versions of its state."""

from __future__ import annotations

import time
import base64
import re
import time as clock
from collections.abc import Iterator, Mapping, Sequence
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
from ._commands import Command
from ._http import Http

_FIRST_POLL_SECONDS = 0.01
_MAX_POLL_SECONDS = 0.2
# How many commands are searched for the one that was typed last.
_RECENT_COMMANDS = 20


class Shell:
    """What a thread, a sandbox and a terminal have in common: commands in one live shell."""

    _http: Http

    def _exec_path(self) -> str:
        raise NotImplementedError

    def exec(
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
        >>> result = shell.exec("echo hello; echo oops >&2; false")
        >>> result.exit_code, result.stdout, result.stderr
        (1, 'hello\\n', 'oops\\n')
        >>> _ = shell.exec("cd /tmp; export COLOR=red")
        >>> (shell.exec("echo $COLOR in $PWD")).stdout
        'red in /tmp\\n'
        >>> (shell.exec("sleep 60", timeout=0.1)).timed_out
        True
        """
        body = exec_body(command, timeout, stdin, env, cwd, max_output_bytes, if_busy, resume)
        reply = self._http.post(self._exec_path(), body, key=key, wait_forever=True)
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
    ) -> Command:
        """Returns a command whose events are received as they happen. Iterating over it starts it.

        Each stream arrives in order; the order between the two is not defined. With `open_stdin`, standard input stays
        open for `write_stdin`. The server keeps 104 MiB of each stream, the first
        8 MiB (or `max_output_bytes`, 64 MiB at most) and the rest from the end: a program that falls behind by more
        than that receives a `Gap`.

        >>> for event in client.thread("docs").exec_stream("echo one; sleep 0.1; echo two"):
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
        return Command(self._http, path=self._exec_path(), body=body, key=key)

    def start(
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
    ) -> Command:
        """Starts a command and returns at once. The command outlives this program.

        >>> command = client.thread("docs").start("read name; echo hello $name", open_stdin=True)
        >>> command.write_stdin("world\\n")
        >>> (command.wait()).stdout
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
        started._start()
        return started


class Terminal(Shell):
    """A terminal. People and programs use the same one: what is typed here is visible to every attached client."""

    def __init__(self, http: Http, terminal_id: str) -> None:
        self._http = http
        self.terminal_id = terminal_id
        self._base = f"/api/terminals/{segment(terminal_id)}"
        self._typed_before: str | None = None
        self._has_typed = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.terminal_id!r})"

    def _exec_path(self) -> str:
        return f"{self._base}/exec"

    def info(self) -> TerminalInfo:
        """Returns the terminal's size, directory, version and live state."""
        return TerminalInfo.from_json(self._http.get(self._base))

    def delete(self) -> None:
        """Ends the terminal's programs and deletes it."""
        self._http.delete(self._base)

    def type(self, text: str | bytes) -> None:
        """Types into the terminal, exactly once. Enter is `\\r`, Ctrl-C is `\\x03`."""
        raw = text.encode() if isinstance(text, str) else text
        if re.search(rb"\S.*[\r\n]", raw):
            self._typed_before = self._last_typed()
            self._has_typed = True
        body = {"data_base64": base64.b64encode(raw).decode(), "write_id": fresh_key()}
        self._http.post(f"{self._base}/input", body, keyed=False)

    @overload
    def screen(self, *, format: Literal["text", "html"] = ..., scrollback: int | None = ...) -> str: ...

    @overload
    def screen(self, *, format: Literal["ansi"], scrollback: int | None = ...) -> Screen: ...

    def screen(
        self, *, format: Literal["text", "html", "ansi"] = "text", scrollback: int | None = None
    ) -> str | Screen:
        """Returns what is on the screen: as text, as HTML, or with its escape sequences, cursor and offset.

        `scrollback` adds lines above the screen.
        """
        params = {"format": format, "scrollback": scrollback}
        reply = self._http.request("GET", f"{self._base}/snapshot", params=params)
        return Screen.from_json(reply.json()) if format == "ansi" else reply.body.decode()

    def wait_for(self, what: str | re.Pattern[str] | Prompt, *, timeout: float = 30.0) -> str:
        """Waits until the screen shows a text or matches a pattern, or until the shell is back at its `PROMPT`;
        returns the screen.

        Text that was typed is on the screen, too: wait for what a program prints. `PROMPT` waits for the end of the
        line that this object typed last. Raises `Timeout` after `timeout` seconds.

        >>> terminal = client.thread("docs").terminal()
        >>> terminal.type("python3 -q\\r")
        >>> _ = terminal.wait_for(">>>")
        >>> terminal.type("6 * 7\\r")
        >>> "42" in terminal.wait_for("42")
        True
        >>> terminal.type("exit()\\r")
        >>> _ = terminal.wait_for(PROMPT)
        """
        deadline = clock.monotonic() + timeout
        poll = _FIRST_POLL_SECONDS
        while True:
            if isinstance(what, Prompt):
                if self._at_prompt():
                    return self.screen()
            else:
                screen = self.screen()
                found = what in screen if isinstance(what, str) else what.search(screen) is not None
                if found:
                    return screen
            if clock.monotonic() + poll > deadline:
                seen = self.screen()
                raise Timeout(f"{what!r} is not on the screen after {timeout} s:\n{seen}")
            time.sleep(poll)
            poll = min(poll * 2, _MAX_POLL_SECONDS)

    def _last_typed(self) -> str | None:
        """Returns the id of the latest command that was typed and has ended."""
        page = self._http.get(f"{self._base}/commands", {"limit": _RECENT_COMMANDS})
        typed = (item["command_id"] for item in page["items"] if item["source"] == "person")
        return next(typed, None)

    def _at_prompt(self) -> bool:
        if self._has_typed and self._last_typed() == self._typed_before:
            return False
        # Shells enable bracketed paste while they read a line, and disable it before they run one.
        return "\x1b[?2004h" in (self.screen(format="ansi")).data

    def attach(self, *, offset: int | None = None) -> Iterator[TerminalEvent]:
        """Yields the screen, then everything that happens on it, until its program exits.

        Starts after an `offset` instead, if the server still has the output since then. Continues after a broken
        connection without a repetition; if it was down for too long, another `snapshot` follows.

        >>> terminal = client.thread("docs").terminal()
        >>> terminal.type("echo attached\\r")
        >>> output = b""
        >>> for event in terminal.attach(offset=0):
        ...     output += event.data
        ...     if b"attached" in output:
        ...         break
        """
        last = None if offset is None else str(offset)
        for event in self._http.subscribe(f"{self._base}/stream", {"mode": "viewer"}, last):
            if event.name == "reconnected":
                continue
            yield TerminalEvent(event.name, event_bytes(event.data), event.data.get("offset"), event.data)
            if event.name == "exit":
                return

    def resize(self, cols: int, rows: int) -> None:
        """Changes the size of the terminal."""
        self._http.post(f"{self._base}/resize", {"cols": cols, "rows": rows})

    def signal(self, name: str) -> None:
        """Sends a signal, such as `INT`, to the program in the foreground."""
        self._http.post(f"{self._base}/signal", {"signal": name})

    def set_env(self, variables: Mapping[str, str] | None = None, *, unset: Sequence[str] = ()) -> TerminalState:
        """Sets and removes exported variables in the live shell."""
        body = {"set": dict(variables or {}), "unset": list(unset)}
        return TerminalState.from_json(self._http.send_json("PATCH", f"{self._base}/env", body))

    def history(self, contains: str | None = None) -> Iterator[CommandInfo]:
        """Yields the commands of the terminal, newest first: those of agents and those that people typed."""
        for item in self._http.pages(f"{self._base}/commands", {"q": contains}):
            yield CommandInfo.from_json(item)

    def versions(self) -> Iterator[Version]:
        """Yields the versions of the shell's state, newest first."""
        for item in self._http.pages(f"{self._base}/versions"):
            yield Version.from_json(item)

    def version(self, version: int, *, since: int | None = None) -> VersionDetail:
        """Returns the content of a version, or only its differences from the version `since`."""
        path = f"{self._base}/versions/{version}"
        return VersionDetail.from_json(self._http.get(path, {"since": since}))

    def rollback(self, version: int) -> TerminalState:
        """Restores an earlier version of the shell's state, which becomes a new version. Files are not changed.

        >>> terminal = client.thread("docs").terminal()
        >>> before = (terminal.exec("cd /usr")).version
        >>> _ = terminal.exec("cd /tmp; export BROKEN=1")
        >>> _ = terminal.rollback(before)
        >>> (terminal.exec("echo $PWD ${BROKEN:-unset}")).stdout
        '/usr unset\\n'
        """
        return TerminalState.from_json(self._http.post(f"{self._base}/rollback", {"version": version}))

    def fork(self, version: int | None = None) -> Terminal:
        """Creates a terminal in the same thread whose shell starts from the state of this one.

        >>> terminal = client.thread("docs").terminal()
        >>> _ = terminal.exec("cd /usr; export STEP=1")
        >>> other = terminal.fork()
        >>> (other.exec("echo $STEP in $PWD")).stdout
        '1 in /usr\\n'
        """
        created = self._http.post(f"{self._base}/fork", given(version=version))
        return Terminal(self._http, created["terminal_id"])


class Terminals:
    """The terminals of all threads, or of one."""

    def __init__(self, http: Http, thread_id: str | None = None) -> None:
        self._http = http
        self._thread_id = thread_id

    def get(self, terminal_id: str) -> Terminal:
        """Returns a terminal; raises `NotFound` if it does not exist."""
        terminal = Terminal(self._http, terminal_id)
        terminal.info()
        return terminal

    def list(self, *, status: str | None = None) -> Iterator[TerminalInfo]:
        """Yields the terminals, optionally only those that are `live`, `exited` or `restorable`."""
        params: dict[str, Any] = {"thread_id": self._thread_id, "status": status}
        for item in self._http.pages("/api/terminals", params):
            yield TerminalInfo.from_json(item)


class ThreadTerminals(Terminals):
    """The terminals of a thread."""

    def __init__(self, http: Http, thread_id: str) -> None:
        super().__init__(http, thread_id)
        self._path = f"/api/threads/{segment(thread_id)}/terminals"

    def create(
        self,
        cmd: Sequence[str] | None = None,
        *,
        cols: int | None = None,
        rows: int | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        shell: Literal["bash", "zsh", "sh"] | None = None,
    ) -> Terminal:
        """Creates another terminal, with a shell or with a program that it ends with.

        >>> terminal = client.thread("docs").terminals.create(["cat"], cols=40, rows=5)
        >>> terminal.type("meow\\r")
        >>> "meow" in terminal.wait_for("meow")
        True
        """
        body = given(cmd=list(cmd) if cmd else None, cols=cols, rows=rows, cwd=cwd, env=env, shell=shell)
        created = self._http.post(self._path, body)
        return Terminal(self._http, created["terminal_id"])
