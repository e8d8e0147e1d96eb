# Generated from _async/_sandboxes.py by tools/unasync.py. Do not edit.
"""Sandboxes: isolated machines with settings and an expiry, each with a thread for its shell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Literal

from .._models import Json, SandboxInfo
from .._wire import given, segment
from ._http import Http
from ._threads import ThreadShell


class Sandbox(ThreadShell):
    """A sandbox, with a shell, files and terminals. As a context manager, it is deleted at the end.

    `state` is that of the last report; `refresh` updates it.
    """

    def __init__(self, http: Http, info: SandboxInfo) -> None:
        super().__init__(http, info.thread_id)
        self.sandbox_id = info.sandbox_id
        self.lease_id = info.lease_id
        self.state = info.state
        self._path = f"/api/sandboxes/{segment(info.sandbox_id)}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.sandbox_id!r}, state={self.state!r})"

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.delete()

    def _report(self, data: Json) -> SandboxInfo:
        info = SandboxInfo.from_json(data)
        self.state = info.state
        return info

    def _act(self, verb: str, body: Mapping[str, Any]) -> SandboxInfo:
        return self._report(self._http.post(f"{self._path}/{verb}", body, wait_forever=True))

    def refresh(self) -> SandboxInfo:
        """Returns what the server reports about the sandbox now."""
        return self._report(self._http.get(self._path))

    def update(self, **changes: Any) -> SandboxInfo:
        """Changes settings of the sandbox, such as `labels`."""
        return self._report(self._http.send_json("PATCH", self._path, changes))

    def pause(self) -> SandboxInfo:
        """Pauses its programs; they stay in memory. The next use resumes them."""
        return self._act("pause", {})

    def resume(self) -> SandboxInfo:
        """Resumes a paused or suspended sandbox."""
        return self._act("resume", {})

    def suspend(self, *, memory: bool | None = None) -> SandboxInfo:
        """Stops the sandbox and keeps its files, and with `memory` its programs, on disk."""
        return self._act("suspend", given(memory=memory))

    def fork(self, *, memory: bool | None = None) -> Sandbox:
        """Creates a copy of the sandbox with its files, and with `memory` its programs."""
        created = self._http.post(f"{self._path}/fork", given(memory=memory), wait_forever=True)
        return Sandbox(self._http, SandboxInfo.from_json(created))

    def snapshot(self, name: str | None = None) -> Json:
        """Saves the files as a snapshot from which sandboxes can be created."""
        saved: Json = self._http.post(f"{self._path}/snapshot", given(name=name), wait_forever=True)
        return saved

    def extend(self, timeout_s: int) -> SandboxInfo:
        """Moves the expiry to `timeout_s` seconds from now."""
        return self._act("extend", {"timeout_s": timeout_s})

    def delete(self) -> None:
        """Deletes the sandbox with its files."""
        self._http.delete(self._path)


class Sandboxes:
    """All sandboxes of the server."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def create(
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
    ) -> Sandbox:
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
        created = self._http.post("/api/sandboxes", body, key=key, wait_forever=True)
        return Sandbox(self._http, SandboxInfo.from_json(created))

    def get(self, sandbox_id: str) -> Sandbox:
        """Returns a sandbox; raises `NotFound` if it does not exist."""
        found = self._http.get(f"/api/sandboxes/{segment(sandbox_id)}")
        return Sandbox(self._http, SandboxInfo.from_json(found))

    def list(self, *, label: str | None = None, state: str | None = None) -> Iterator[Sandbox]:
        """Yields all sandboxes, optionally only those with a label (`NAME=VALUE`) or in a state."""
        for item in self._http.pages("/api/sandboxes", {"label": label, "state": state}):
            yield Sandbox(self._http, SandboxInfo.from_json(item))
