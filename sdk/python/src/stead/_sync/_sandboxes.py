# Generated from _async/_sandboxes.py by tools/unasync.py. Do not edit.
"""Sandboxes: isolated machines with settings and an expiry, each with a thread for its shell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Literal

from .._models import SandboxInfo, Snapshot
from .._wire import given, segment
from ._http import Http
from ._threads import ThreadShell


class Sandbox(ThreadShell):
    """A sandbox, with a shell, files and terminals. As a context manager, it is deleted at the end.

    `info` is the last report of the server; `refresh` asks for another one.
    """

    def __init__(self, http: Http, info: SandboxInfo) -> None:
        super().__init__(http, info.thread_id)
        self.sandbox_id = info.sandbox_id
        self.info = info
        self._path = f"/api/sandboxes/{segment(info.sandbox_id)}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.sandbox_id!r}, state={self.info.state!r})"

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.delete()

    def _act(self, verb: str, body: Mapping[str, Any]) -> SandboxInfo:
        reply = self._http.post(f"{self._path}/{verb}", body, wait_forever=True)
        self.info = SandboxInfo.from_json(reply)
        return self.info

    def refresh(self) -> SandboxInfo:
        """Returns what the server reports about the sandbox now."""
        self.info = SandboxInfo.from_json(self._http.get(self._path))
        return self.info

    def update(
        self,
        *,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        timeout_s: int | None = None,
        on_timeout: Literal["suspend", "destroy"] | None = None,
    ) -> SandboxInfo:
        """Changes the name, all labels, the lifetime from now, or what happens at its end."""
        body = given(name=name, labels=labels, timeout_s=timeout_s, on_timeout=on_timeout)
        self.info = SandboxInfo.from_json(self._http.send_json("PATCH", self._path, body))
        return self.info

    def pause(self) -> SandboxInfo:
        """Pauses its programs; they stay in memory. The next use resumes them."""
        return self._act("pause", {})

    def resume(self) -> SandboxInfo:
        """Resumes a paused or suspended sandbox."""
        return self._act("resume", {})

    def suspend(self, *, memory: bool | None = None) -> SandboxInfo:
        """Ends its programs and keeps its files and the state of its shells. The next use starts it from them.

        With `memory` its programs are kept as well; `NotSupported` is raised if the provider cannot do that.
        """
        return self._act("suspend", given(memory=memory))

    def fork(
        self,
        *,
        name: str | None = None,
        memory: bool | None = None,
        labels: Mapping[str, str] | None = None,
        timeout_s: int | None = None,
    ) -> Sandbox:
        """Creates a sandbox with a copy of the files of this one, whose shell continues with the state of this one's.

        With `memory` its programs are copied as well. Labels and lifetime are those of the original if omitted.
        """
        body = given(name=name, memory=memory, labels=labels, timeout_s=timeout_s)
        created = self._http.post(f"{self._path}/fork", body, wait_forever=True)
        return Sandbox(self._http, SandboxInfo.from_json(created))

    def snapshot(self, name: str) -> Snapshot:
        """Saves the files under a name, with which `create` starts sandboxes from them."""
        saved = self._http.post(f"{self._path}/snapshot", {"name": name}, wait_forever=True)
        return Snapshot.from_json(saved)

    def extend(self, timeout_s: int) -> SandboxInfo:
        """Lets the sandbox live at least `timeout_s` seconds from now."""
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
        memory: str | None = None,
        processes: int | None = None,
        disk: str | None = None,
        egress: Mapping[str, Any] | None = None,
        capabilities: Literal["root", "none"] | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: int | None = None,
        on_timeout: Literal["suspend", "destroy"] | None = None,
        labels: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> Sandbox:
        """Creates a sandbox and starts it.

        With a `name`, the sandbox of this name in the project is returned if it exists. `timeout_s` is its lifetime;
        at its end the sandbox is suspended, or deleted with `on_timeout="destroy"`.

        >>> sandbox = client.sandboxes.create(env={"COLOR": "red"}, timeout_s=600, labels={"kind": "docs"})
        >>> (sandbox.exec("echo $COLOR")).stdout
        'red\\n'
        >>> [one.sandbox_id for one in client.sandboxes.list(label="kind=docs")] == [sandbox.sandbox_id]
        True
        >>> sandbox.delete()
        """
        body = given(
            name=name,
            project_id=project_id,
            provider=provider,
            image=image,
            snapshot=snapshot,
            cpus=cpus,
            memory=memory,
            processes=processes,
            disk=disk,
            egress=egress,
            capabilities=capabilities,
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

    def list(
        self, *, label: str | None = None, state: str | None = None, project_id: str | None = None
    ) -> Iterator[Sandbox]:
        """Yields all sandboxes, newest first.

        Optionally only those with labels (`NAME=VALUE`), in states, or of a project; several labels or states are
        separated by commas.
        """
        params = {"label": label, "state": state, "project_id": project_id}
        for item in self._http.pages("/api/sandboxes", params):
            yield Sandbox(self._http, SandboxInfo.from_json(item))
