"""The client: where everything starts."""

from __future__ import annotations

import builtins
import os
from collections.abc import AsyncIterator
from types import TracebackType

import httpx

from .._discovery import find_server
from .._models import Event, Provider, parse_time
from .._retry import RetryPolicy
from ._commands import AsyncCommands
from ._handoffs import AsyncHandoffs
from ._http import AsyncHttp
from ._sandboxes import AsyncSandboxes
from ._terminals import AsyncTerminal, AsyncTerminals
from ._threads import AsyncThread, AsyncThreads


class AsyncStead:
    """A client of a Stead server. Connects when it is first used.

    >>> async with AsyncStead.connect() as stead:
    ...     result = await stead.thread("hello").exec("echo Hello from $0")
    >>> result.stdout
    'Hello from bash\\n'
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        home: str | os.PathLike[str] | None = None,
        cacert: str | os.PathLike[str] | None = None,
        timeout: float = 60.0,
        retry: RetryPolicy | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """The same as `connect`. `transport` replaces the HTTP transport, for example to use a proxy."""
        server = find_server(url, token, home=home, cacert=cacert)
        self._http = AsyncHttp(server, retry or RetryPolicy(), timeout, transport)
        self.sandboxes = AsyncSandboxes(self._http)
        self.threads = AsyncThreads(self._http)
        self.terminals = AsyncTerminals(self._http)
        self.commands = AsyncCommands(self._http)
        self.handoffs = AsyncHandoffs(self._http)

    @classmethod
    def connect(
        cls,
        url: str | None = None,
        token: str | None = None,
        *,
        home: str | os.PathLike[str] | None = None,
        cacert: str | os.PathLike[str] | None = None,
        timeout: float = 60.0,
        retry: RetryPolicy | None = None,
    ) -> AsyncStead:
        """Finds the server and returns a client of it.

        Uses the arguments; otherwise the variables `STEAD_URL`, `STEAD_TOKEN` and `STEAD_CACERT`; otherwise the
        server that runs in `home` (`STEAD_HOME`, or `~/.stead`). `timeout` is how long, in seconds, the server may be
        silent during a request; the duration of commands is not limited by it.
        """
        return cls(url, token, home=home, cacert=cacert, timeout=timeout, retry=retry)

    @property
    def url(self) -> str:
        """The URL of the server."""
        return self._http.url

    async def __aenter__(self) -> AsyncStead:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections. Shells, commands and sandboxes keep running."""
        await self._http.aclose()

    def thread(self, thread_id: str) -> AsyncThread:
        """Returns a thread by its id, which you choose. It is created by its first command."""
        return AsyncThread(self._http, thread_id)

    def terminal(self, terminal_id: str) -> AsyncTerminal:
        """Returns a terminal by its id, without a request."""
        return AsyncTerminal(self._http, terminal_id)

    async def providers(self) -> builtins.list[Provider]:
        """Returns the kinds of compute that the server has.

        >>> [provider.name for provider in await client.providers() if provider.default]
        ['local']
        """
        return [Provider.from_json(item) for item in (await self._http.get("/api/providers"))["items"]]

    async def events(self, *, after: int | None = None) -> AsyncIterator[Event]:
        """Yields the events of the server, such as `thread_created` or `command_ended`, as they happen.

        Starts after the event with the id `after`, if given. Continues after a broken connection; a `gap` event
        means that some are missing.

        >>> async for event in client.events(after=0):
        ...     if event.type == "thread_created":
        ...         break
        >>> event.data["thread_id"]
        '...'
        """
        last = None if after is None else str(after)
        async for event in self._http.subscribe("/api/events", None, last):
            if event.name != "reconnected":
                at = event.data.get("at")
                number = int(event.id) if event.id is not None else None
                yield Event(number, event.name, parse_time(at) if at else None, event.data)
