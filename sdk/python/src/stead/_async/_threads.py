"""Threads: conversations or tasks, each with a durable shell."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from .._models import Lease, PortLink, ThreadInfo, ThreadSummary
from .._wire import given, segment
from ._files import AsyncFiles
from ._http import AsyncHttp
from ._terminals import AsyncShell, AsyncTerminal, AsyncThreadTerminals


class AsyncPorts:
    """The ports that programs of a thread listen on: `await thread.ports()` lists them."""

    def __init__(self, http: AsyncHttp, thread_id: str) -> None:
        self._http = http
        self._base = f"/api/threads/{segment(thread_id)}/ports"

    async def __call__(self) -> list[int]:
        """Returns the TCP ports that programs listen on, in ascending order.

        Without a sandbox (provider `local`) these are the ports of the machine.
        """
        found = await self._http.get(self._base)
        return [item["port"] for item in found["items"]]

    async def link(self, port: int, *, expires_in_ms: int | None = None) -> PortLink:
        """Returns a link that opens a port in a browser, without a token, until it expires (after a day by default).

        Everyone who has the link can use the port. The program need not listen yet.
        """
        body = given(expires_in_ms=expires_in_ms)
        return PortLink.from_json(await self._http.post(f"{self._base}/{port}/links", body))


class AsyncThreadShell(AsyncShell):
    """What a thread and a sandbox have in common: a shell, files and terminals."""

    def __init__(self, http: AsyncHttp, thread_id: str) -> None:
        self._http = http
        self.thread_id = thread_id
        self._base = f"/api/threads/{segment(thread_id)}"
        self.files = AsyncFiles(http, thread_id)
        self.terminals = AsyncThreadTerminals(http, thread_id)
        self.ports = AsyncPorts(http, thread_id)

    def _exec_path(self) -> str:
        return f"{self._base}/exec"

    async def terminal(self) -> AsyncTerminal:
        """Returns the default terminal, in which `exec` runs its commands."""
        found = await self._http.get(f"{self._base}/terminal")
        return AsyncTerminal(self._http, found["terminal_id"])

    async def lease(self) -> Lease:
        """Returns the claim on compute, with the running instance."""
        return Lease.from_json(await self._http.get(f"{self._base}/lease"))


class AsyncThread(AsyncThreadShell):
    """A thread: a task with a shell, files and terminals.

    The first command creates it, and so does `client.threads.create`; its files are there from then on.
    """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.thread_id!r})"

    async def info(self) -> ThreadInfo:
        """Returns the thread with its messages and compute; raises `NotFound` if it does not exist."""
        return ThreadInfo.from_json(await self._http.get(self._base))

    async def pause(self) -> Lease:
        """Pauses the programs of the thread's instance. The next command resumes them.

        >>> shell = client.thread("docs")
        >>> (await shell.pause()).instance.state
        'paused'
        >>> (await shell.exec("echo awake")).stdout
        'awake\\n'
        """
        return Lease.from_json(await self._http.post(f"{self._base}/pause"))

    async def resume(self) -> Lease:
        """Resumes the thread's instance."""
        return Lease.from_json(await self._http.post(f"{self._base}/resume"))

    async def delete(self) -> None:
        """Deletes the thread with its terminals, and its instance unless another thread shares it."""
        await self._http.delete(self._base)


class AsyncThreads:
    """All threads of the server."""

    def __init__(self, http: AsyncHttp) -> None:
        self._http = http

    async def create(
        self,
        thread_id: str,
        *,
        project_id: str | None = None,
        provider: str | None = None,
        sandbox: Mapping[str, Any] | None = None,
        lease_id: str | None = None,
        policy: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> AsyncThread:
        """Creates a thread with options, or changes the options of an existing one.

        >>> thread = await client.threads.create("docs-options", env={"CI": "1"}, cwd="/tmp")
        >>> (await thread.exec("echo $CI $PWD")).stdout
        '1 /tmp\\n'
        >>> await thread.delete()
        """
        body = given(
            project_id=project_id,
            provider=provider,
            sandbox=sandbox,
            lease_id=lease_id,
            policy=policy,
            env=env,
            cwd=cwd,
            labels=labels,
        )
        await self._http.send_json("PUT", f"/api/threads/{segment(thread_id)}", body)
        return AsyncThread(self._http, thread_id)

    async def get(self, thread_id: str) -> AsyncThread:
        """Returns a thread; raises `NotFound` if it does not exist.

        >>> await client.threads.get("no such thread")
        Traceback (most recent call last):
        stead.NotFound: there is no thread "no such thread" (not_found, 404)
        """
        thread = AsyncThread(self._http, thread_id)
        await thread.info()
        return thread

    async def list(self, *, project_id: str | None = None) -> AsyncIterator[ThreadSummary]:
        """Yields all threads in the order of their creation, optionally only those of a project.

        >>> _ = await client.thread("docs").exec("true")
        >>> "docs" in [thread.thread_id async for thread in client.threads.list()]
        True
        """
        async for item in self._http.pages("/api/threads", {"project_id": project_id}):
            yield ThreadSummary.from_json(item)
