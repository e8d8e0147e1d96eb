"""Sandboxes: isolated machines with settings and an expiry, each with a thread for its shell."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Literal

from .._models import Json, SandboxInfo
from .._wire import given, segment
from ._http import AsyncHttp
from ._threads import AsyncThreadShell


class AsyncSandbox(AsyncThreadShell):
    """A sandbox, with a shell, files and terminals. As a context manager, it is deleted at the end.

    `state` is that of the last report; `refresh` updates it.
    """

    def __init__(self, http: AsyncHttp, info: SandboxInfo) -> None:
        super().__init__(http, info.thread_id)
        self.sandbox_id = info.sandbox_id
        self.lease_id = info.lease_id
        self.state = info.state
        self._path = f"/api/sandboxes/{segment(info.sandbox_id)}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.sandbox_id!r}, state={self.state!r})"

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.delete()

    def _report(self, data: Json) -> SandboxInfo:
        info = SandboxInfo.from_json(data)
        self.state = info.state
        return info

    async def _act(self, verb: str, body: Mapping[str, Any]) -> SandboxInfo:
        return self._report(await self._http.post(f"{self._path}/{verb}", body, wait_forever=True))

    async def refresh(self) -> SandboxInfo:
        """Returns what the server reports about the sandbox now."""
        return self._report(await self._http.get(self._path))

    async def update(self, **changes: Any) -> SandboxInfo:
        """Changes settings of the sandbox, such as `labels`."""
        return self._report(await self._http.send_json("PATCH", self._path, changes))

    async def pause(self) -> SandboxInfo:
        """Pauses its programs; they stay in memory. The next use resumes them."""
        return await self._act("pause", {})

    async def resume(self) -> SandboxInfo:
        """Resumes a paused or suspended sandbox."""
        return await self._act("resume", {})

    async def suspend(self, *, memory: bool | None = None) -> SandboxInfo:
        """Stops the sandbox and keeps its files, and with `memory` its programs, on disk."""
        return await self._act("suspend", given(memory=memory))

    async def fork(self, *, memory: bool | None = None) -> AsyncSandbox:
        """Creates a copy of the sandbox with its files, and with `memory` its programs."""
        created = await self._http.post(f"{self._path}/fork", given(memory=memory), wait_forever=True)
        return AsyncSandbox(self._http, SandboxInfo.from_json(created))

    async def snapshot(self, name: str | None = None) -> Json:
        """Saves the files as a snapshot from which sandboxes can be created."""
        saved: Json = await self._http.post(f"{self._path}/snapshot", given(name=name), wait_forever=True)
        return saved

    async def extend(self, timeout_s: int) -> SandboxInfo:
        """Moves the expiry to `timeout_s` seconds from now."""
        return await self._act("extend", {"timeout_s": timeout_s})

    async def delete(self) -> None:
        """Deletes the sandbox with its files."""
        await self._http.delete(self._path)


class AsyncSandboxes:
    """All sandboxes of the server."""

    def __init__(self, http: AsyncHttp) -> None:
        self._http = http

    async def create(
        self,
        name: str | None = None,
        *,
        project_id: str | None = None,
        provider: str | None = None,
        image: str | None = None,
        snapshot: str | None = None,
        cpus: float | None = None,
        memory: str | int | None = None,
        disk: str | int | None = None,
        egress: Any = None,
        env: Mapping[str, str] | None = None,
        timeout_s: int | None = None,
        on_timeout: Literal["suspend", "destroy"] | None = None,
        labels: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> AsyncSandbox:
        """Creates a sandbox. A `name` makes this idempotent within the project: the same call returns the same
        sandbox."""
        body = given(
            name=name,
            project_id=project_id,
            provider=provider,
            image=image,
            snapshot=snapshot,
            cpus=cpus,
            memory=memory,
            disk=disk,
            egress=egress,
            env=env,
            timeout_s=timeout_s,
            on_timeout=on_timeout,
            labels=labels,
        )
        created = await self._http.post("/api/sandboxes", body, key=key, wait_forever=True)
        return AsyncSandbox(self._http, SandboxInfo.from_json(created))

    async def get(self, sandbox_id: str) -> AsyncSandbox:
        """Returns a sandbox; raises `NotFound` if it does not exist."""
        found = await self._http.get(f"/api/sandboxes/{segment(sandbox_id)}")
        return AsyncSandbox(self._http, SandboxInfo.from_json(found))

    async def list(self, *, label: str | None = None, state: str | None = None) -> AsyncIterator[AsyncSandbox]:
        """Yields all sandboxes, optionally only those with a label (`NAME=VALUE`) or in a state."""
        async for item in self._http.pages("/api/sandboxes", {"label": label, "state": state}):
            yield AsyncSandbox(self._http, SandboxInfo.from_json(item))
