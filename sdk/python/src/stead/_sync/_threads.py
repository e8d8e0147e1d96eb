# Generated from _async/_threads.py by tools/unasync.py. Do not edit.
"""Threads: conversations or tasks, each with a durable shell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .._models import Lease, PortLink, ThreadInfo, ThreadSummary
from .._wire import given, segment
from ._files import Files
from ._http import Http
from ._terminals import Shell, Terminal, ThreadTerminals


class Ports:
    """The ports that programs of a thread listen on: `thread.ports()` lists them."""

    def __init__(self, http: Http, thread_id: str) -> None:
        self._http = http
        self._base = f"/api/threads/{segment(thread_id)}/ports"

    def __call__(self) -> list[int]:
        """Returns the TCP ports that programs listen on, in ascending order.

        Without a sandbox (provider `local`) these are the ports of the machine.
        """
        found = self._http.get(self._base)
        return [item["port"] for item in found["items"]]

    def link(self, port: int, *, expires_in_ms: int | None = None) -> PortLink:
        """Returns a link that opens a port in a browser, without a token, until it expires (after a day by default).

        Everyone who has the link can use the port. The program need not listen yet.
        """
        body = given(expires_in_ms=expires_in_ms)
        return PortLink.from_json(self._http.post(f"{self._base}/{port}/links", body))


class ThreadShell(Shell):
    """What a thread and a sandbox have in common: a shell, files and terminals."""

    def __init__(self, http: Http, thread_id: str) -> None:
        self._http = http
        self.thread_id = thread_id
        self._base = f"/api/threads/{segment(thread_id)}"
        self.files = Files(http, thread_id)
        self.terminals = ThreadTerminals(http, thread_id)
        self.ports = Ports(http, thread_id)

    def _exec_path(self) -> str:
        return f"{self._base}/exec"

    def terminal(self) -> Terminal:
        """Returns the default terminal, in which `exec` runs its commands."""
        found = self._http.get(f"{self._base}/terminal")
        return Terminal(self._http, found["terminal_id"])

    def lease(self) -> Lease:
        """Returns the claim on compute, with the running instance."""
        return Lease.from_json(self._http.get(f"{self._base}/lease"))


class Thread(ThreadShell):
    """A thread: a task with a shell, files and terminals.

    The first command creates it, and so does `client.threads.create`; its files are there from then on.
    """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.thread_id!r})"

    def info(self) -> ThreadInfo:
        """Returns the thread with its messages and compute; raises `NotFound` if it does not exist."""
        return ThreadInfo.from_json(self._http.get(self._base))

    def pause(self) -> Lease:
        """Pauses the programs of the thread's instance. The next command resumes them.

        >>> shell = client.thread("docs")
        >>> (shell.pause()).instance.state
        'paused'
        >>> (shell.exec("echo awake")).stdout
        'awake\\n'
        """
        return Lease.from_json(self._http.post(f"{self._base}/pause"))

    def resume(self) -> Lease:
        """Resumes the thread's instance."""
        return Lease.from_json(self._http.post(f"{self._base}/resume"))

    def delete(self) -> None:
        """Deletes the thread with its terminals, and its instance unless another thread shares it."""
        self._http.delete(self._base)


class Threads:
    """All threads of the server."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def create(
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
    ) -> Thread:
        """Creates a thread with options, or changes the options of an existing one.

        >>> thread = client.threads.create("docs-options", env={"CI": "1"}, cwd="/tmp")
        >>> (thread.exec("echo $CI $PWD")).stdout
        '1 /tmp\\n'
        >>> thread.delete()
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
        self._http.send_json("PUT", f"/api/threads/{segment(thread_id)}", body)
        return Thread(self._http, thread_id)

    def get(self, thread_id: str) -> Thread:
        """Returns a thread; raises `NotFound` if it does not exist.

        >>> client.threads.get("no such thread")
        Traceback (most recent call last):
        stead.NotFound: there is no thread "no such thread" (not_found, 404)
        """
        thread = Thread(self._http, thread_id)
        thread.info()
        return thread

    def list(self, *, project_id: str | None = None) -> Iterator[ThreadSummary]:
        """Yields all threads in the order of their creation, optionally only those of a project.

        >>> _ = client.thread("docs").exec("true")
        >>> "docs" in [thread.thread_id for thread in client.threads.list()]
        True
        """
        for item in self._http.pages("/api/threads", {"project_id": project_id}):
            yield ThreadSummary.from_json(item)
