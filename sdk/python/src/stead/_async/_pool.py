"""The connections to one server, and the requests on them."""

from __future__ import annotations

import ssl
import threading
import time as clock
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from typing import Protocol

import httpx

from .._http1 import Head, header_lines, take_head
from .._streams import AsyncStream
from .._wire import CONNECT_TIMEOUT, Timeouts

MAX_IDLE_CONNECTIONS = 20
# Shorter than servers and proxies keep an idle connection.
MAX_IDLE_SECONDS = 5.0
# Longer bodies are sent after the head, not copied behind it.
_MAX_JOINED_BYTES = 64 << 10

AsyncContent = bytes | AsyncIterable[bytes] | None


class AsyncResponse(Protocol):
    """A response of httpx, or of our own connections."""

    @property
    def status_code(self) -> int: ...
    @property
    def is_success(self) -> bool: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    def aiter_raw(self) -> AsyncIterator[bytes]: ...
    async def aread(self) -> bytes: ...
    async def aclose(self) -> None: ...


class AsyncSender(Protocol):
    """Sends requests to one server."""

    async def send(
        self, method: str, target: str, headers: Mapping[str, str], content: AsyncContent, timeouts: Timeouts
    ) -> AsyncResponse:
        """Sends a request and returns the response when its head is there."""

    async def aclose(self) -> None: ...


class AsyncPool:
    """Connections to one server with HTTP/1.1.

    httpx would take longer for a request than the server for a command. Here a request is one write and mostly one
    read; there are no proxies, redirects, cookies, compression or HTTP/2.
    """

    def __init__(self, url: httpx.URL, tls: ssl.SSLContext | None, headers: Mapping[str, str]) -> None:
        """`headers` are those of every request."""
        #: Host and port to connect to.
        self.address = (url.host, url.port or (80 if tls is None else 443))
        self._tls = tls
        self._path = url.raw_path.decode("ascii").rstrip("/")
        self._headers = header_lines(headers)
        # Idle connections, the latest last, each with the time when it was released.
        self._idle: list[tuple[float, AsyncStream]] = []
        self._lock = threading.Lock()
        self._closed = False

    async def send(
        self, method: str, target: str, headers: Mapping[str, str], content: AsyncContent, timeouts: Timeouts
    ) -> AsyncResponse:
        if isinstance(content, bytes):
            framing = f"content-length: {len(content)}\r\n"
        else:
            framing = "" if content is None else "transfer-encoding: chunked\r\n"
        first = f"{method} {self._path}{target} HTTP/1.1\r\n"
        head = f"{first}{self._headers}{header_lines(headers)}{framing}\r\n".encode("ascii")
        stream = self._acquire()
        if stream is None:
            stream = await AsyncStream.connect(*self.address, self._tls, CONNECT_TIMEOUT)
        try:
            sent = await _send(stream, head, content, timeouts.write)
            received = b""
            while True:
                data = await stream.receive(timeouts.head)
                if not data:
                    raise httpx.RemoteProtocolError("the server closed the connection without a response")
                received = received + data if received else data
                found = take_head(received)
                if found is not None:
                    break
        except BaseException:
            stream.close()
            raise
        return AsyncPooledResponse(self, stream, *found, sent, timeouts.read)

    async def aclose(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for _, stream in idle:
            stream.close()

    def _acquire(self) -> AsyncStream | None:
        """Returns an idle connection that the server has not closed."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                since, stream = self._idle.pop()
            if clock.monotonic() - since < MAX_IDLE_SECONDS and not stream.is_stale():
                return stream
            stream.close()

    def release(self, stream: AsyncStream) -> None:
        """Keeps a connection for the next request."""
        now = clock.monotonic()
        with self._lock:
            self._idle.append((now, stream))
            surplus = 0
            while surplus < len(self._idle) and (
                self._closed
                or surplus < len(self._idle) - MAX_IDLE_CONNECTIONS
                or now - self._idle[surplus][0] >= MAX_IDLE_SECONDS
            ):
                surplus += 1
            closing, self._idle[:surplus] = self._idle[:surplus], []
        for _, one in closing:
            one.close()


async def _send(stream: AsyncStream, head: bytes, content: AsyncContent, timeout: float) -> bool:
    """Sends a request. Returns `False` if the server stopped reading it: it may have sent a response before that."""
    try:
        if content is None or isinstance(content, bytes):
            if content is not None and len(content) > _MAX_JOINED_BYTES:
                await stream.send(head, timeout)
                await stream.send(content, timeout)
            else:
                await stream.send(head + content if content else head, timeout)
            return True
        await stream.send(head, timeout)
        async for part in content:
            if part:
                await stream.send(b"%x\r\n%b\r\n" % (len(part), part), timeout)
        await stream.send(b"0\r\n\r\n", timeout)
        return True
    except httpx.WriteError:
        return False


class AsyncPooledResponse:
    """A response. The end of its body releases the connection."""

    def __init__(
        self, pool: AsyncPool, stream: AsyncStream, head: Head, rest: bytes, sent: bool, timeout: float
    ) -> None:
        self.status_code = head.status
        self.is_success = 200 <= head.status < 300
        self.headers: Mapping[str, str] = head.headers
        self._pool = pool
        self._stream: AsyncStream | None = stream
        self._body = head.body
        self._keep_alive = head.keep_alive and sent
        self._rest = rest
        self._timeout = timeout

    async def _next(self) -> list[bytes]:
        """Returns the next parts of the body; none at its end."""
        while self._stream is not None:
            data, self._rest = self._rest, b""
            if not data and not self._body.complete:
                data = await self._stream.receive(self._timeout)
                if not data:
                    self._body.end()
            parts = self._body.take(data) if data else []
            if self._body.complete:
                await self.aclose()
            if parts:
                return parts
        return []

    async def aiter_raw(self) -> AsyncIterator[bytes]:
        try:
            while parts := await self._next():
                for part in parts:
                    yield part
        finally:
            await self.aclose()

    async def aread(self) -> bytes:
        try:
            whole = await self._next()
            while self._stream is not None:
                whole += await self._next()
            return b"".join(whole)
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        stream, self._stream = self._stream, None
        if stream is None:
            return
        if self._keep_alive and self._body.complete and not self._body.overrun and not self._rest:
            self._pool.release(stream)
        else:
            stream.close()


class AsyncTransportSender:
    """Sends requests by a transport of httpx."""

    def __init__(self, transport: httpx.AsyncBaseTransport, url: str, headers: Mapping[str, str]) -> None:
        self._transport = transport
        self._url = url
        self._headers = headers

    async def send(
        self, method: str, target: str, headers: Mapping[str, str], content: AsyncContent, timeouts: Timeouts
    ) -> AsyncResponse:
        seconds = {"connect": CONNECT_TIMEOUT, "write": timeouts.write, "read": timeouts.head}
        request = httpx.Request(
            method,
            self._url + target,
            headers={**self._headers, **headers},
            content=content,
            extensions={"timeout": seconds},
        )
        response = await self._transport.handle_async_request(request)
        # The transport reads this again before it reads the body.
        seconds["read"] = timeouts.read
        return response

    async def aclose(self) -> None:
        await self._transport.aclose()
