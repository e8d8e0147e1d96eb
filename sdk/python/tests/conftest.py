from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from harness import Server, running_server

from stead import Stead, Thread

_names = itertools.count()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A server that tests share; they do not restart it."""
    with running_server() as server:
        yield server


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server]:
    """A server that the tests of one file may kill."""
    with running_server() as server:
        yield server


@pytest.fixture(scope="session")
def client(server: Server) -> Iterator[Stead]:
    with Stead(server.url, server.token) as client:
        yield client


@pytest.fixture(scope="module")
def thread(client: Stead) -> Thread:
    """A thread for the tests of one file. Starting a shell takes longer than many of them."""
    thread = client.thread(f"test-{next(_names)}")
    thread.exec("true")
    return thread
