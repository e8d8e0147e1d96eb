"""Commands: their events, output, input and end."""

from __future__ import annotations

import asyncio
import base64
import json
import time as clock
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any

import httpx

from .._errors import Gone, SteadError, Timeout, event_error
from .._models import ExecEvent, ExecResult, Exited, Started, StreamName
from .._output import STREAMS, Position, event_bytes
from .._sse import EventParser, ServerEvent
from .._wire import JSON_HEADERS, fresh_key, segment
from ._http import AsyncHttp

# How much output one request reads.
_READ_BYTES = 4 << 20
# How long requests wait for output or for the end of a command: short at first, then longer.
_FIRST_WAIT_MS = 20
_MAX_WAIT_MS = 1000


class AsyncCommand:
    """A command in a terminal. Iterate over it to receive its events, once.

    The events are `Started` if this starts the command, then `Output` and rarely `Gap`, and finally `Exited`. Broken
    connections and restarts of the server are not visible: the output continues at the byte where it stopped.
    """

    def __init__(
        self,
        http: AsyncHttp,
        *,
        path: str = "",
        body: dict[str, Any] | None = None,
        key: str | None = None,
        command_id: str | None = None,
        position: Position | None = None,
    ) -> None:
        self._http = http
        self._path = path
        self._body = body
        self._key = key or fresh_key()
        self._command_id = command_id
        self._position = position or Position()
        self._result: ExecResult | None = None
        self._events: AsyncIterator[ExecEvent] | None = None

    @property
    def command_id(self) -> str:
        """The id of the command, with which `client.commands.attach` finds it again."""
        if self._command_id is None:
            raise SteadError("the command was not started yet: iterate over it, or use start()")
        return self._command_id

    @property
    def result(self) -> ExecResult | None:
        """The result, once the events have ended."""
        return self._result

    async def __aenter__(self) -> AsyncCommand:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stops receiving events. The command continues; `cancel` ends it."""
        events, self._events = self._events, None
        if events is not None:
            await events.aclose()  # type: ignore[attr-defined]

    def __aiter__(self) -> AsyncIterator[ExecEvent]:
        if self._events is None:
            self._events = self._follow()
        return self._events

    async def wait(self, timeout: float | None = None) -> ExecResult:
        """Waits until the command has ended, and returns its result without receiving its output.

        Raises `Timeout` after `timeout` seconds; the command continues.
        """
        if self._result is not None:
            return self._result
        await self._start()
        deadline = None if timeout is None else clock.monotonic() + timeout
        wait = _FIRST_WAIT_MS / 1000
        while True:
            result = await self._receipt()
            if not result.running:
                self._result = result
                return result
            if deadline is not None and clock.monotonic() >= deadline:
                raise Timeout(f"command {self.command_id} has not ended after {timeout} s")
            await asyncio.sleep(wait if deadline is None else min(wait, max(0, deadline - clock.monotonic())))
            wait = min(wait * 2, _MAX_WAIT_MS / 1000)

    async def cancel(self) -> None:
        """Ends the command with all its processes, or removes it from the queue."""
        await self._http.post(f"/api/commands/{segment(self.command_id)}/cancel")

    async def signal(self, name: str) -> None:
        """Sends a signal, such as `INT`, to the processes of the command."""
        await self._http.post(f"/api/commands/{segment(self.command_id)}/signal", {"signal": name})

    async def write_stdin(self, data: str | bytes = b"", *, eof: bool = False) -> None:
        """Writes to the standard input of a command that was started with `open_stdin`, exactly once."""
        raw = data.encode() if isinstance(data, str) else data
        body = {"data_base64": base64.b64encode(raw).decode(), "eof": eof, "write_id": fresh_key()}
        await self._http.post(f"/api/commands/{segment(self.command_id)}/stdin", body, keyed=False)

    async def output(self, stream: StreamName = "stdout") -> bytes:
        """Returns everything that the command has written to a stream and that the server still has."""
        parts = []
        start = 0
        while True:
            offset, data, end = await self._read(stream, start, 0)
            parts.append(data)
            start = offset + len(data)
            if end or not data:
                return b"".join(parts)

    async def _start(self) -> None:
        if self._command_id is None:
            receipt = await self._http.post(self._path, self._body, key=self._key, wait_forever=True)
            self._command_id = receipt["command_id"]

    async def _receipt(self) -> ExecResult:
        return ExecResult.from_json(await self._http.get(f"/api/commands/{segment(self.command_id)}"))

    async def _read(self, stream: StreamName, start: int, wait_ms: int) -> tuple[int, bytes, bool]:
        """Returns the offset of a part of the output, the part, and whether it is the last one."""
        path = f"/api/commands/{segment(self.command_id)}/output"
        params = {"stream": stream, "from": start, "limit": _READ_BYTES, "wait_ms": wait_ms}
        attempts = self._http.attempts()
        while True:
            response = await self._http.open("GET", path, params=params, attempts=attempts)
            offset, last = int(response.headers["x-offset"]), response.headers["x-end"] == "true"
            parts: list[bytes] = []
            try:
                async for part in response.aiter_raw():
                    parts.append(part)
                return offset, b"".join(parts), last
            except httpx.TransportError as error:
                # What arrived is not requested again, so that there is progress on a connection that often breaks.
                if parts:
                    return offset, b"".join(parts), False
                wait = attempts.delay(error, repeatable=True, known_server=True)
                if wait is None:
                    raise self._http.explain(error) from error
            finally:
                await response.aclose()
            await asyncio.sleep(wait)

    async def _follow(self) -> AsyncIterator[ExecEvent]:
        if self._command_id is None:
            async for event in self._live():
                yield event
        if self._result is None:
            async for event in self._by_offset():
                yield event

    async def _live(self) -> AsyncIterator[ExecEvent]:
        """Starts the command and yields its events as they are sent, until the end or until the connection breaks."""
        headers = {**JSON_HEADERS, "accept": "text/event-stream", "idempotency-key": self._key}
        content = json.dumps(self._body).encode()
        attempts = self._http.attempts()
        while self._command_id is None:
            response = await self._http.open("POST", self._path, headers=headers, content=content, attempts=attempts)
            error: Exception = httpx.RemoteProtocolError("the server ended the stream")
            try:
                if not response.headers["content-type"].startswith("text/event-stream"):
                    # An earlier request with this key started the command.
                    receipt = json.loads(await response.aread())
                    self._command_id = receipt["command_id"]
                    yield Started(receipt["command_id"], receipt["terminal_id"])
                    return
                parser = EventParser()
                async for chunk in response.aiter_raw():
                    for message in parser.feed(chunk):
                        for event in self._take(message):
                            yield event
                        if self._result is not None:
                            return
            except httpx.TransportError as broken:
                error = broken
            finally:
                await response.aclose()
            if self._command_id is None:
                wait = attempts.delay(error, repeatable=True, known_server=True)
                if wait is None:
                    raise self._http.explain(error) from error
                await asyncio.sleep(wait)

    def _take(self, message: ServerEvent) -> list[ExecEvent]:
        """Returns the events for a message of the live stream."""
        data = message.data
        if message.name == "started":
            self._command_id = data["command_id"]
            return [Started(data["command_id"], data["terminal_id"])]
        if message.name == "stdout":
            return list(self._position.take("stdout", data["offset"], event_bytes(data)))
        if message.name == "stderr":
            return list(self._position.take("stderr", data["offset"], event_bytes(data)))
        if message.name == "exit":
            return self._exited(ExecResult.from_json(data))
        if message.name == "error" and self._command_id is None:
            raise event_error(data)
        # After other errors the output is read by offset, and `gap` is visible in the offsets.
        return []

    def _exited(self, result: ExecResult) -> list[ExecEvent]:
        self._result = result
        rest: list[ExecEvent] = [event for stream in STREAMS for event in self._position.flush(stream)]
        return [*rest, Exited(result)]

    async def _by_offset(self) -> AsyncIterator[ExecEvent]:
        """Yields the events after the position, until the end."""
        active, wait_ms = STREAMS[0], _FIRST_WAIT_MS
        while True:
            received, ended = False, True
            # Waits for the stream that was written to last, after a request for the other one.
            for stream in sorted(STREAMS, key=lambda name: name == active):
                may_wait = stream == active and not received
                try:
                    start = self._position.next(stream)
                    offset, data, end = await self._read(stream, start, wait_ms if may_wait else 0)
                except Gone:
                    continue
                ended = ended and end
                for event in self._position.take(stream, offset, data):
                    yield event
                if data:
                    received, active = True, stream
            if received and not ended:
                wait_ms = _FIRST_WAIT_MS
                continue
            result = await self._receipt()
            if not result.running:
                break
            if ended:
                await asyncio.sleep(wait_ms / 1000)
            wait_ms = min(wait_ms * 2, _MAX_WAIT_MS)
        # What was written between the last request and the end.
        totals = {"stdout": result.stdout_bytes, "stderr": result.stderr_bytes}
        for stream in STREAMS:
            while self._position.next(stream) < totals[stream]:
                start = self._position.next(stream)
                try:
                    offset, data, _ = await self._read(stream, start, 0)
                except Gone:
                    offset, data = totals[stream], b""
                for event in self._position.take(stream, offset if data else totals[stream], data):
                    yield event
        for last in self._exited(result):
            yield last


class AsyncCommands:
    """The commands of all terminals, by id."""

    def __init__(self, http: AsyncHttp) -> None:
        self._http = http

    async def get(self, command_id: str) -> ExecResult:
        """Returns the receipt of a command, which may still run.

        >>> result = await client.thread("docs").exec("echo hello")
        >>> (await client.commands.get(result.command_id)).stdout
        'hello\\n'
        """
        return ExecResult.from_json(await self._http.get(f"/api/commands/{segment(command_id)}"))

    def attach(self, command_id: str, *, stdout_from: int = 0, stderr_from: int = 0) -> AsyncCommand:
        """Returns a command that was started earlier, perhaps by another program. Its events start at the given
        offsets.

        >>> command = await client.thread("docs").start("echo one; echo two")
        >>> async for event in client.commands.attach(command.command_id, stdout_from=4):
        ...     if isinstance(event, Output):
        ...         print(event.text, end="")
        two
        """
        position = Position(stdout_from, stderr_from)
        return AsyncCommand(self._http, command_id=command_id, position=position)
