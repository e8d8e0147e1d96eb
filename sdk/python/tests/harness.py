"""What the tests need around the client: a real server, and a proxy that cuts connections."""

from __future__ import annotations

import os
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from stead import Stead
from stead._sync._pool import Pool

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/sdk"))

import server as suites  # noqa: E402

T = TypeVar("T")
DEADLINE = 60.0


class Server(suites.Server):  # type: ignore[misc]
    """`stead serve` in a home of its own."""

    home: str
    url: str
    token: str
    address: str

    def restart(self) -> None:
        """Kills the server with SIGKILL and starts it again at the same address."""
        self.kill()
        self.start()


@contextmanager
def running_server(provider: str = "local") -> Iterator[Server]:
    before = os.environ.get("STEAD_PROVIDER")
    os.environ["STEAD_PROVIDER"] = provider
    os.environ.setdefault("STEAD_BIN", str(ROOT / "target/release/stead"))
    server = Server()
    try:
        yield server
    finally:
        server.close()
        if before is None:
            del os.environ["STEAD_PROVIDER"]
        else:
            os.environ["STEAD_PROVIDER"] = before


def until(condition: Callable[[], T], what: str) -> T:
    """Waits for a condition and returns its value."""
    end = time.monotonic() + DEADLINE
    while True:
        seen = condition()
        if seen:
            return seen
        if time.monotonic() > end:
            raise AssertionError(f"waited {DEADLINE} s for {what}; last saw {seen!r}")
        time.sleep(0.01)


class CuttingProxy:
    """Forwards connections, and cuts nine out of ten after a random number of bytes of their responses."""

    def __init__(self, target: str, seed: int, min_bytes: int, max_bytes: int) -> None:
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._random = random.Random(seed)
        self._range = (min_bytes, max_bytes)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections = 0
        self.cuts = 0
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def client(self, server: Server) -> Stead:
        """A client through this proxy. Requests still name the server, which refuses other names."""
        client = Stead(server.url, server.token)
        assert isinstance(client._http._sender, Pool)
        client._http._sender.address = ("127.0.0.1", self.port)
        return client

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target)
            except OSError:
                # The server is being restarted. The next connection may reach it.
                client.close()
                continue
            self._connections += 1
            budget = None if self._connections % 10 == 0 else self._random.randint(*self._range)
            threading.Thread(target=self._forward, args=(client, server, None), daemon=True).start()
            threading.Thread(target=self._forward, args=(server, client, budget), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, budget: int | None) -> None:
        try:
            while data := source.recv(65536):
                if budget is not None and len(data) >= budget:
                    target.sendall(data[:budget])
                    self.cuts += 1
                    break
                target.sendall(data)
                budget = None if budget is None else budget - len(data)
        except OSError:
            pass
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
