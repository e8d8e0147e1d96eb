"""Connections, blocking and with asyncio, to servers that follow a script."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest
from harness import DEADLINE, Server, until

from stead import AsyncStead, Stead
from stead._async import _pool as _async_pool
from stead._async._pool import AsyncPool, AsyncPooledResponse, AsyncResponse
from stead._streams import AsyncStream
from stead._sync import _pool
from stead._sync._pool import Pool, Response
from stead._wire import Timeouts

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HEADERS = {"host": "h"}
TIMEOUTS = Timeouts(DEADLINE, DEADLINE, DEADLINE)
Script = Callable[[socket.socket], None]
BODY = [b"part %d\n" % number for number in range(3)]


class Scripted:
    """A server whose connections follow a script."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = httpx.URL(f"http://127.0.0.1:{self._listener.getsockname()[1]}")
        self.connections = 0
        self.requests: list[bytes] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._run, args=(connection,), daemon=True).start()

    def _run(self, connection: socket.socket) -> None:
        with connection:
            self._script(connection)

    def close(self) -> None:
        self._listener.close()

    def read(self, connection: socket.socket, end: bytes = b"\r\n\r\n") -> bool:
        """Reads a request up to its end; returns `False` if there is none."""
        received = b""
        while not received.endswith(end):
            data = connection.recv(65536)
            if not data:
                return False
            received += data
        self.requests.append(received)
        return True


@contextmanager
def scripted(script: Callable[[Scripted, socket.socket], None]) -> Iterator[Scripted]:
    server = Scripted(lambda connection: script(server, connection))
    try:
        yield server
    finally:
        server.close()


def answering(response: bytes, end: bytes = b"\r\n\r\n") -> Callable[[Scripted, socket.socket], None]:
    """A script that sends the same response to each request."""

    def script(server: Scripted, connection: socket.socket) -> None:
        while server.read(connection, end):
            connection.sendall(response)

    return script


class Blocking:
    """A pool that blocks."""

    def __init__(self, url: httpx.URL) -> None:
        self._pool = Pool(url, None, HEADERS)

    def __enter__(self) -> Blocking:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    def open(self, content: bytes | Iterator[bytes] | None = None, seconds: float = DEADLINE) -> Response:
        return self._pool.send("POST", "/path", {"x-key": "a"}, content, Timeouts(seconds, seconds, seconds))

    def send(self, content: bytes | Iterator[bytes] | None = None, seconds: float = DEADLINE) -> bytes:
        return self.open(content, seconds).read()

    def first_part(self) -> bytes:
        """Leaves the rest of the body."""
        response = self.open()
        part = next(response.iter_raw())
        response.close()
        return part

    def upload(self, parts: list[bytes]) -> bytes:
        return self.send(iter(parts))


class Asynchronous:
    """A pool of asyncio, in a loop that runs only during a call."""

    def __init__(self, url: httpx.URL) -> None:
        self._loop = asyncio.new_event_loop()
        self._pool = AsyncPool(url, None, HEADERS)

    def __enter__(self) -> Asynchronous:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run_until_complete(self._pool.aclose())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def open(self, content: bytes | AsyncIterator[bytes] | None, seconds: float) -> AsyncResponse:
        return await self._pool.send("POST", "/path", {"x-key": "a"}, content, Timeouts(seconds, seconds, seconds))

    def send(self, content: bytes | AsyncIterator[bytes] | None = None, seconds: float = DEADLINE) -> bytes:
        async def send() -> bytes:
            return await (await self.open(content, seconds)).aread()

        return self._loop.run_until_complete(send())

    def first_part(self) -> bytes:
        async def first_part() -> bytes:
            response = await self.open(None, DEADLINE)
            part = await response.aiter_raw().__anext__()
            await response.aclose()
            return part

        return self._loop.run_until_complete(first_part())

    def upload(self, parts: list[bytes]) -> bytes:
        async def body() -> AsyncIterator[bytes]:
            for part in parts:
                yield part

        return self.send(body())


both = pytest.mark.parametrize("kind", [Blocking, Asynchronous])
Kind = type[Blocking] | type[Asynchronous]


@both
def test_requests_in_a_row_use_one_connection(kind: Kind) -> None:
    with scripted(answering(OK, b"}")) as server, kind(server.url) as pool:
        assert [pool.send(b"{}") for _ in range(3)] == [b"ok"] * 3
        assert server.connections == 1
        assert server.requests[0] == b"POST /path HTTP/1.1\r\nhost: h\r\nx-key: a\r\ncontent-length: 2\r\n\r\n{}"


def test_a_child_process_does_not_use_the_connections_of_its_parent() -> None:
    with scripted(answering(OK)) as server, Blocking(server.url) as pool:
        assert pool.send() == b"ok"
        child = os.fork()
        if child == 0:
            os._exit(0 if pool.send() == b"ok" else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert server.connections == 2
        assert pool.send() == b"ok"
        assert server.connections == 2


@both
@pytest.mark.parametrize("response", [OK + b"?", OK.replace(b"Content", b"Connection: close\r\nContent")])
def test_a_connection_that_is_not_clean_is_not_used_again(kind: Kind, response: bytes) -> None:
    with scripted(answering(response)) as server, kind(server.url) as pool:
        assert [pool.send() for _ in range(3)] == [b"ok"] * 3
        assert server.connections == 3


@both
def test_a_connection_with_an_unread_response_is_not_used_again(kind: Kind) -> None:
    with scripted(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok")) as server, kind(server.url) as pool:
        assert [pool.first_part() for _ in range(2)] == [b"ok"] * 2
        assert server.connections == 2


@both
def test_a_connection_that_the_server_closed_is_not_used_again(kind: Kind) -> None:
    closed = threading.Semaphore(0)

    def script(server: Scripted, connection: socket.socket) -> None:
        server.read(connection)
        connection.sendall(OK)
        connection.close()
        closed.release()

    with scripted(script) as server, kind(server.url) as pool:
        for _ in range(3):
            assert pool.send() == b"ok"
            assert closed.acquire(timeout=DEADLINE)
        assert server.connections == 3


@both
def test_connections_that_were_idle_for_long_are_closed(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (_async_pool, _pool):
        monkeypatch.setattr(module, "MAX_IDLE_SECONDS", 0.0)
    with scripted(answering(OK)) as server, kind(server.url) as pool:
        assert [pool.send() for _ in range(2)] == [b"ok"] * 2
        assert server.connections == 2


def test_only_some_idle_connections_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pool, "MAX_IDLE_CONNECTIONS", 2)
    together, ended = threading.Barrier(5), threading.Semaphore(0)

    def script(server: Scripted, connection: socket.socket) -> None:
        answering(OK)(server, connection)
        ended.release()

    with scripted(script) as server, Blocking(server.url) as pool, ThreadPoolExecutor(5) as threads:
        open_responses = list(threads.map(lambda _: pool.open(), range(5)))
        assert list(threads.map(lambda one: (together.wait(), one.read())[1], open_responses)) == [b"ok"] * 5
        for _ in range(3):
            assert ended.acquire(timeout=DEADLINE)
        assert not ended.acquire(blocking=False)


@both
def test_a_body_of_unknown_length_is_sent_in_chunks(kind: Kind) -> None:
    with scripted(answering(OK, b"\r\n0\r\n\r\n")) as server, kind(server.url) as pool:
        assert pool.upload([BODY[0], b"", *BODY[1:]]) == b"ok"
        head, body = server.requests[0].split(b"\r\n\r\n", 1)
        assert head.endswith(b"transfer-encoding: chunked")
        assert body == b"".join(b"7\r\n%b\r\n" % part for part in BODY) + b"0\r\n\r\n"


@both
@pytest.mark.parametrize("joined", [True, False])
def test_a_large_body_arrives_whole(kind: Kind, joined: bool) -> None:
    parts = [bytes([number]) * (1 << 20) for number in range(8)]
    whole = b"".join(parts) + b"END"

    def script(server: Scripted, connection: socket.socket) -> None:
        server.read(connection, b"END" if joined else b"\r\n0\r\n\r\n")
        connection.sendall(OK)

    with scripted(script) as server, kind(server.url) as pool:
        assert (pool.send(whole) if joined else pool.upload([*parts, b"END"])) == b"ok"
        assert server.requests[0].count(b"\7" * 100) == len(parts[7]) // 100 and server.requests[0].count(b"END") == 1


@both
def test_a_response_before_the_end_of_the_request_arrives(kind: Kind) -> None:
    refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 9\r\n\r\ntoo large"

    def script(server: Scripted, connection: socket.socket) -> None:
        connection.recv(1)
        connection.sendall(refusal)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass

    with scripted(script) as server, kind(server.url) as pool:
        assert pool.upload([b"x" * (1 << 20)] * 16) == b"too large"


@both
def test_a_silent_server_is_given_up(kind: Kind) -> None:
    def script(server: Scripted, connection: socket.socket) -> None:
        server.read(connection)
        connection.recv(1)

    with scripted(script) as server, kind(server.url) as pool, pytest.raises(httpx.ReadTimeout):
        pool.send(None, 0.05)


@both
def test_a_server_that_reads_nothing_is_given_up(kind: Kind) -> None:
    done = threading.Event()
    with (
        scripted(lambda _, __: (done.wait(DEADLINE), None)[1]) as server,
        kind(server.url) as pool,
        pytest.raises(httpx.WriteTimeout),
    ):
        pool.send(b"x" * (64 << 20), 0.05)
    done.set()


@both
@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\n", OK.removesuffix(b"k")])
def test_a_connection_that_ends_too_early_is_an_error(kind: Kind, sent: bytes) -> None:
    def script(server: Scripted, connection: socket.socket) -> None:
        server.read(connection)
        connection.sendall(sent)

    with scripted(script) as server, kind(server.url) as pool, pytest.raises(httpx.RemoteProtocolError):
        pool.send()


@both
def test_no_server_is_an_error_before_sending(kind: Kind) -> None:
    url = httpx.URL("http://127.0.0.1:9")
    with kind(url) as pool, pytest.raises(httpx.ConnectError):
        pool.send()


def test_a_slow_reader_stops_the_server() -> None:
    size = 64 << 20
    sent = 0

    def script(server: Scripted, connection: socket.socket) -> None:
        nonlocal sent
        server.read(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        while sent < size:
            sent += connection.send(b"x" * 65536)

    async def main() -> None:
        pool = AsyncPool(server.url, None, HEADERS)
        response = await pool.send("GET", "/", {}, None, TIMEOUTS)
        assert isinstance(response, AsyncPooledResponse) and response._stream is not None
        # The loop runs, but the program does not read.
        while response._stream._reading:
            await asyncio.sleep(0)
        assert sent < size
        assert sum([len(part) async for part in response.aiter_raw()]) == size
        await pool.aclose()

    with scripted(script) as server:
        asyncio.run(main())


def test_a_connection_can_be_closed_after_its_last_byte_was_sent_to_a_server_that_ended_it() -> None:
    ended = threading.Event()

    def script(server: Scripted, connection: socket.socket) -> None:
        connection.shutdown(socket.SHUT_WR)
        ended.wait(DEADLINE)
        while connection.recv(65536):
            pass

    async def main() -> None:
        stream = await AsyncStream.connect(server.url.host, server.url.port or 0, None, DEADLINE)
        with pytest.raises(httpx.WriteError):
            await stream.send(b"x" * (64 << 20), DEADLINE)
        ended.set()
        while not stream._lost:
            await asyncio.sleep(0)
        stream.close()

    with scripted(script) as server:
        asyncio.run(main())


def test_a_cancelled_request_leaves_the_pool_usable() -> None:
    def script(server: Scripted, connection: socket.socket) -> None:
        while server.read(connection):
            if len(server.requests) > 1:
                connection.sendall(OK)

    async def main() -> None:
        pool = AsyncPool(server.url, None, HEADERS)
        task = asyncio.create_task(pool.send("GET", "/", {}, None, TIMEOUTS))
        await asyncio.to_thread(until, lambda: server.requests, "the request")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await (await pool.send("GET", "/", {}, None, TIMEOUTS)).aread() == b"ok"
        await pool.aclose()

    with scripted(script) as server:
        asyncio.run(main())
        assert server.connections == 2


def test_an_async_client_works_in_several_event_loops(server: Server) -> None:
    client = AsyncStead(server.url, server.token)
    for number in range(3):
        assert asyncio.run(client.thread("loops").exec(f"echo {number}")).stdout == f"{number}\n"
    asyncio.run(client.aclose())


def test_a_transport_of_httpx_can_be_used_instead(server: Server) -> None:
    with Stead(server.url, server.token, transport=httpx.HTTPTransport()) as client:
        thread = client.thread("other-transport")
        assert thread.exec("echo one").stdout == "one\n"
        thread.files.write("/workspace/a", iter(BODY))
        assert b"".join(thread.files.stream("/workspace/a")) == b"".join(BODY)
