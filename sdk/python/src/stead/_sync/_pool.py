# Generated from _async/_pool.py by tools/unasync.py. Do not edit.
"""The connections to one server, and the requests on them."""

from __future__ import annotations

import ssl
import threading
import time as clock
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

import httpx

from .._http1 import Head, header_lines, take_head
from .._streams import Stream
from .._wire import CONNECT_TIMEOUT, Timeouts

MAX_IDLE_CONNECTIONS = 20
# Shorter than servers and proxies keep an idle connection.
MAX_IDLE_SECONDS = 5.0
# Longer bodies are sent after the head, not copied behind it.
_MAX_JOINED_BYTES = 64 << 10

Content = bytes | Iterable[bytes] | None


class Response(Protocol):
    """A response of httpx, or of our own connections."""

    @property
    def status_code(self) -> int: ...
    @property
    def is_success(self) -> bool: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    def iter_raw(self) -> Iterator[bytes]: ...
    def read(self) -> bytes: ...
    def close(self) -> None: ...


class Sender(Protocol):
    """Sends requests to one server."""

    def send(
        self, method: str, target: str, headers: Mapping[str, str], content: Content, timeouts: Timeouts
    ) -> Response:
        """Sends a request and returns the response when its head is there."""

    def close(self) -> None: ...


class Pool:
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
        self._idle: list[tuple[float, Stream]] = []
        self._lock = threading.Lock()
        self._closed = False

    def send(
        self, method: str, target: str, headers: Mapping[str, str], content: Content, timeouts: Timeouts
    ) -> Response:
        if isinstance(content, bytes):
            framing = f"content-length: {len(content)}\r\n"
        else:
            framing = "" if content is None else "transfer-encoding: chunked\r\n"
        first = f"{method} {self._path}{target} HTTP/1.1\r\n"
        head = f"{first}{self._headers}{header_lines(headers)}{framing}\r\n".encode("ascii")
        stream = self._acquire()
        if stream is None:
            stream = Stream.connect(*self.address, self._tls, CONNECT_TIMEOUT)
        try:
            sent = _send(stream, head, content, timeouts.write)
            received = b""
            while True:
                data = stream.receive(timeouts.head)
                if not data:
                    raise httpx.RemoteProtocolError("the server closed the connection without a response")
                received = received + data if received else data
                found = take_head(received)
                if found is not None:
                    break
        except BaseException:
            stream.close()
            raise
        return PooledResponse(self, stream, *found, sent, timeouts.read)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for _, stream in idle:
            stream.close()

    def _acquire(self) -> Stream | None:
        """Returns an idle connection that the server has not closed."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                since, stream = self._idle.pop()
            if clock.monotonic() - since < MAX_IDLE_SECONDS and not stream.is_stale():
                return stream
            stream.close()

    def release(self, stream: Stream) -> None:
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


def _send(stream: Stream, head: bytes, content: Content, timeout: float) -> bool:
    """Sends a request. Returns `False` if the server stopped reading it: it may have sent a response before that."""
    try:
        if content is None or isinstance(content, bytes):
            if content is not None and len(content) > _MAX_JOINED_BYTES:
                stream.send(head, timeout)
                stream.send(content, timeout)
            else:
                stream.send(head + content if content else head, timeout)
            return True
        stream.send(head, timeout)
        for part in content:
            if part:
                stream.send(b"%x\r\n%b\r\n" % (len(part), part), timeout)
        stream.send(b"0\r\n\r\n", timeout)
        return True
    except httpx.WriteError:
        return False


class PooledResponse:
    """A response. The end of its body releases the connection."""

    def __init__(
        self, pool: Pool, stream: Stream, head: Head, rest: bytes, sent: bool, timeout: float
    ) -> None:
        self.status_code = head.status
        self.is_success = 200 <= head.status < 300
        self.headers: Mapping[str, str] = head.headers
        self._pool = pool
        self._stream: Stream | None = stream
        self._body = head.body
        self._keep_alive = head.keep_alive and sent
        self._rest = rest
        self._timeout = timeout

    def _next(self) -> list[bytes]:
        """Returns the next parts of the body; none at its end."""
        while self._stream is not None:
            data, self._rest = self._rest, b""
            if not data and not self._body.complete:
                data = self._stream.receive(self._timeout)
                if not data:
                    self._body.end()
            parts = self._body.take(data) if data else []
            if self._body.complete:
                self.close()
            if parts:
                return parts
        return []

    def iter_raw(self) -> Iterator[bytes]:
        try:
            while parts := self._next():
                for part in parts:
                    yield part
        finally:
            self.close()

    def read(self) -> bytes:
        try:
            whole = self._next()
            while self._stream is not None:
                whole += self._next()
            return b"".join(whole)
        finally:
            self.close()

    def close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is None:
            return
        if self._keep_alive and self._body.complete and not self._body.overrun and not self._rest:
            self._pool.release(stream)
        else:
            stream.close()


class TransportSender:
    """Sends requests by a transport of httpx."""

    def __init__(self, transport: httpx.BaseTransport, url: str, headers: Mapping[str, str]) -> None:
        self._transport = transport
        self._url = url
        self._headers = headers

    def send(
        self, method: str, target: str, headers: Mapping[str, str], content: Content, timeouts: Timeouts
    ) -> Response:
        seconds = {"connect": CONNECT_TIMEOUT, "write": timeouts.write, "read": timeouts.head}
        request = httpx.Request(
            method,
            self._url + target,
            headers={**self._headers, **headers},
            content=content,
            extensions={"timeout": seconds},
        )
        response = self._transport.handle_request(request)
        # The transport reads this again before it reads the body.
        seconds["read"] = timeouts.read
        return response

    def close(self) -> None:
        self._transport.close()
