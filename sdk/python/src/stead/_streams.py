"""Connections as streams of bytes, blocking and with asyncio. Their errors are those of httpx."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import ssl
from contextlib import suppress

import httpx

_READ_BYTES = 64 << 10
_WRITE_BYTES = 256 << 10
# Reading pauses when this much was received and not consumed.
_MAX_BUFFERED_BYTES = 256 << 10
# How long to wait for one address of a server before the next one is tried as well.
_NEXT_ADDRESS_SECONDS = 0.25


def _keepalive_options() -> list[tuple[int, int, int]]:
    """Socket options that notice a vanished peer in half a minute, also while a command runs in silence."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


class _Readable:
    """Tells whether a socket has something to read, was closed by its peer, or is that of the parent process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._process = os.getpid()
        self._poll = None
        # Windows has no `poll`, and no limit on the numbers that `select` takes.
        if hasattr(select, "poll"):
            self._poll = select.poll()
            self._poll.register(descriptor, select.POLLIN)

    def __call__(self) -> bool:
        if self._process != os.getpid():
            return True
        if self._poll is not None:
            return bool(self._poll.poll(0))
        return bool(select.select([self._descriptor], [], [], 0)[0])


class Stream:
    """A connection that blocks."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._readable = _Readable(connected.fileno())

    @classmethod
    def connect(cls, host: str, port: int, tls: ssl.SSLContext | None, timeout: float | None) -> Stream:
        try:
            connected = socket.create_connection((host, port), timeout)
            try:
                for option in _keepalive_options():
                    connected.setsockopt(*option)
                if tls is not None:
                    connected = tls.wrap_socket(connected, server_hostname=host)
            except BaseException:
                connected.close()
                raise
        except TimeoutError as error:
            raise httpx.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise httpx.ConnectError(str(error)) from error
        return cls(connected)

    def is_stale(self) -> bool:
        """Returns whether an idle connection cannot be used again."""
        return self._readable()

    def send(self, data: bytes, timeout: float | None) -> None:
        try:
            self._limit(timeout)
            rest = memoryview(data)
            while rest:
                rest = rest[self._socket.send(rest) :]
        except TimeoutError as error:
            raise httpx.WriteTimeout(str(error)) from error
        except OSError as error:
            raise httpx.WriteError(str(error)) from error

    def receive(self, timeout: float | None) -> bytes:
        """Returns the next bytes; none at the end."""
        try:
            self._limit(timeout)
            return self._socket.recv(_READ_BYTES)
        except TimeoutError as error:
            raise httpx.ReadTimeout(str(error)) from error
        except OSError as error:
            raise httpx.ReadError(str(error)) from error

    def _limit(self, timeout: float | None) -> None:
        # Setting it is a system call.
        if self._socket.gettimeout() != timeout:
            self._socket.settimeout(timeout)

    def close(self) -> None:
        self._socket.close()


class AsyncStream(asyncio.Protocol):
    """A connection of an event loop, for one task at a time."""

    _transport: asyncio.Transport
    _readable: _Readable

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._received: list[bytes] = []
        self._size = 0
        self._waiter: asyncio.Future[bool] | None = None
        self._reading = True
        self._writable = True
        # No more is received; and the transport is gone.
        self._ended = False
        self._lost = False
        self._error: Exception | None = None

    @classmethod
    async def connect(cls, host: str, port: int, tls: ssl.SSLContext | None, timeout: float | None) -> AsyncStream:
        opening = asyncio.get_running_loop().create_connection(
            cls,
            host,
            port,
            ssl=tls,
            server_hostname=None if tls is None else host,
            happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS,
        )
        try:
            return (await asyncio.wait_for(opening, timeout))[1]
        # Two classes before Python 3.11.
        except (asyncio.TimeoutError, TimeoutError) as error:
            raise httpx.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise httpx.ConnectError(str(error)) from error

    def is_stale(self) -> bool:
        """Returns whether an idle connection cannot be used again."""
        # The loop may not have run since the peer closed the connection, so that only the socket knows.
        return bool(self._ended or self._received or self._loop is not asyncio.get_running_loop() or self._readable())

    async def send(self, data: bytes, timeout: float | None) -> None:
        rest = memoryview(data)
        while rest and not self._ended:
            # In parts, so that the timeout is that of a server that reads nothing, not of a slow one.
            self._transport.write(rest[:_WRITE_BYTES])
            rest = rest[_WRITE_BYTES:]
            while not (self._writable or self._ended):
                if not await self._wait_for_change(timeout):
                    raise httpx.WriteTimeout(f"the server has read nothing for {timeout} s")
        if self._ended:
            raise httpx.WriteError("the server closed the connection") from self._error

    async def receive(self, timeout: float | None) -> bytes:
        """Returns the next bytes; none at the end."""
        while not self._received:
            if self._error is not None:
                raise httpx.ReadError(str(self._error)) from self._error
            if self._ended:
                return b""
            if not await self._wait_for_change(timeout):
                raise httpx.ReadTimeout(f"the server has sent nothing for {timeout} s")
        data = self._received[0] if len(self._received) == 1 else b"".join(self._received)
        self._received.clear()
        self._size = 0
        if not self._reading and not self._ended:
            self._reading = True
            self._transport.resume_reading()
        return data

    def close(self) -> None:
        if not self._lost:
            # The loop of an idle connection may be closed.
            with suppress(RuntimeError):
                self._transport.abort()

    async def _wait_for_change(self, timeout: float | None) -> bool:
        """Waits for a change of the connection; returns `False` if there is none in time."""
        waiter: asyncio.Future[bool] = self._loop.create_future()
        self._waiter = waiter
        timer = None if timeout is None else self._loop.call_later(timeout, self._wake, False)
        try:
            return await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _wake(self, changed: bool = True) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(changed)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        connected = transport.get_extra_info("socket")
        for option in _keepalive_options():
            connected.setsockopt(*option)
        self._readable = _Readable(connected.fileno())

    def data_received(self, data: bytes) -> None:
        self._received.append(data)
        self._size += len(data)
        if self._size >= _MAX_BUFFERED_BYTES and self._reading:
            self._reading = False
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._ended = True
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._ended = True
        self._lost = True
        self._error = error
        self._wake()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._wake()
