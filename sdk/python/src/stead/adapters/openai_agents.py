"""Sandboxes for the OpenAI Agents SDK.

    from agents.run import RunConfig
    from agents.sandbox import SandboxAgent, SandboxRunConfig
    from stead.adapters.openai_agents import SteadSandboxClient, SteadSandboxClientOptions

    client = SteadSandboxClient()
    config = SandboxRunConfig(client=client, options=SteadSandboxClientOptions(image="python:3.12"))
    await Runner.run(SandboxAgent(...), "...", run_config=RunConfig(sandbox=config))

A sandbox survives the program that uses it: `resume` with the serialized state of a session continues in the same
sandbox, also after the program was killed, and finds its files and its running processes.
"""

from __future__ import annotations

import contextlib
import io
import uuid
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from agents.sandbox.errors import (
    ExecTimeoutError,
    ExecTransportError,
    ExposedPortUnavailableError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
    WorkspaceWriteTypeError,
)
from agents.sandbox.manifest import Manifest
from agents.sandbox.session import SandboxSession, SandboxSessionState
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.manager import Instrumentation
from agents.sandbox.session.runtime_helpers import RESOLVE_WORKSPACE_PATH_HELPER, RuntimeHelperScript
from agents.sandbox.session.sandbox_client import BaseSandboxClient, BaseSandboxClientOptions
from agents.sandbox.session.tar_workspace import shell_tar_exclude_args
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
from agents.sandbox.types import ExecResult, ExposedPortEndpoint, User
from agents.sandbox.util.tar_utils import UnsafeTarMemberError, validate_tar_bytes

from .. import AsyncSandbox, AsyncStead, NotFound, SteadError
from .._wire import fresh_key
from ._openai_pty import PtyPrograms
from ._programs import Programs
from ._sandboxes import create_sandbox, delete_sandbox, follow_links, write_file


class SteadSandboxClientOptions(BaseSandboxClientOptions):
    """The settings of a sandbox, as `sandboxes.create` takes them, and the ports that may be opened from outside."""

    type: Literal["stead"] = "stead"
    name: str | None = None
    image: str | None = None
    snapshot: str | None = None
    provider: str | None = None
    project_id: str | None = None
    cpus: float | None = None
    memory: str | None = None
    processes: int | None = None
    disk: str | None = None
    egress: dict[str, Any] | None = None
    env: dict[str, str] | None = None
    timeout_s: int | None = None
    labels: dict[str, str] | None = None
    exposed_ports: tuple[int, ...] = ()


class SteadSandboxSessionState(SandboxSessionState):
    """What is needed to find the sandbox of a session again, or to replace it."""

    type: Literal["stead"] = "stead"
    sandbox_id: str
    options: SteadSandboxClientOptions


class SteadSandboxSession(PtyPrograms, BaseSandboxSession):
    """A session in one sandbox."""

    state: SteadSandboxSessionState

    def __init__(self, state: SteadSandboxSessionState, sandbox: AsyncSandbox) -> None:
        super().__init__(sandbox)
        self.state = state
        self._sandbox = sandbox
        self._programs = Programs(sandbox)

    async def _ensure_backend_started(self) -> None:
        if (await self._sandbox.refresh()).state != "running":
            await self._sandbox.resume()

    async def _prepare_backend_workspace(self) -> None:
        await self._programs.run(["mkdir", "-p", self.state.manifest.root])

    def _runtime_helpers(self) -> tuple[RuntimeHelperScript, ...]:
        return (RESOLVE_WORKSPACE_PATH_HELPER,)

    async def _validate_path_access(self, path: Path | str, *, for_write: bool = False) -> Path:
        return await self._validate_remote_path_access(path, for_write=for_write)

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:
        argv, user = [str(part) for part in command], None
        # This is how the SDK asks for another user; many images have no `sudo`.
        if argv[:2] == ["sudo", "-u"] and argv[3:4] == ["--"]:
            argv, user = argv[4:], argv[2]
        root, env = self.state.manifest.root, await self.state.manifest.environment.resolve()
        try:
            # The root of the workspace is created by such commands.
            cwd = root if self.state.workspace_root_ready else None
            completed = await self._programs.run(argv, cwd=cwd, env=env, user=user, timeout=timeout)
        except SteadError as error:
            raise ExecTransportError(command=command, cause=error, message=str(error)) from error
        if completed.timed_out:
            raise ExecTimeoutError(command=command, timeout_s=timeout)
        if completed.exit_code is None:
            raise ExecTransportError(command=command, message=f"the command is {completed.status}")
        return ExecResult(stdout=completed.stdout, stderr=completed.stderr, exit_code=completed.exit_code)

    async def read(self, path: Path | str, *, user: str | User | None = None) -> io.IOBase:
        checked = self._check_read_with_exec(Path(path), user=user) if user else self._validate_path_access(path)
        target = await checked
        try:
            return io.BytesIO(await follow_links(self._programs, target.as_posix(), self._sandbox.files.read))
        except NotFound as error:
            raise WorkspaceReadNotFoundError(path=target, cause=error) from error
        except SteadError as error:
            raise WorkspaceArchiveReadError(path=target, cause=error) from error

    async def write(self, path: Path | str, data: io.IOBase, *, user: str | User | None = None) -> None:
        if user is not None:
            await self._check_write_with_exec(Path(path), user=user)
        target = await self._validate_path_access(path, for_write=True)
        try:
            await write_file(self._sandbox, self._programs, target.as_posix(), _bytes_of(data, target))
        except (SteadError, OSError) as error:
            raise WorkspaceArchiveWriteError(path=target, cause=error) from error

    async def running(self) -> bool:
        try:
            return (await self._sandbox.refresh()).state == "running"
        except SteadError:
            return False

    async def _resolve_exposed_port(self, port: int) -> ExposedPortEndpoint:
        """Returns a preview link: everyone who knows its host name can use the port, for a day."""
        try:
            link = urlsplit((await self._sandbox.ports.link(port)).url)
        except SteadError as error:
            ports = self.state.exposed_ports
            raise ExposedPortUnavailableError(
                port=port, exposed_ports=ports, reason="backend_unavailable", cause=error
            ) from error
        tls = link.scheme == "https"
        return ExposedPortEndpoint(host=link.hostname or "", port=link.port or (443 if tls else 80), tls=tls)

    async def persist_workspace(self) -> io.IOBase:
        root, archive = self._workspace_root_path(), f"/tmp/.stead-{fresh_key()}.tar"
        excluded = shell_tar_exclude_args(self._persist_workspace_skip_relpaths())
        script = f'tar {" ".join(excluded)} -C "$1" -cf "$2" .'
        try:
            packed = await self._exec_internal("sh", "-c", script, "sh", root.as_posix(), archive)
            if not packed.ok():
                context: dict[str, object] = {"output": packed.stderr.decode(errors="replace")}
                raise WorkspaceArchiveReadError(path=root, context=context)
            return io.BytesIO(await self._sandbox.files.read(archive))
        except SteadError as error:
            raise WorkspaceArchiveReadError(path=root, cause=error) from error
        finally:
            await self._exec_internal("rm", "-f", archive)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        root, archive = self._workspace_root_path(), f"/tmp/.stead-{fresh_key()}.tar"
        payload = _bytes_of(data, root)
        try:
            validate_tar_bytes(payload, allow_external_symlink_targets=False)
            await write_file(self._sandbox, self._programs, archive, payload)
        except (UnsafeTarMemberError, SteadError, OSError) as error:
            raise WorkspaceArchiveWriteError(path=root, cause=error) from error
        script = 'mkdir -p "$1" && tar -C "$1" -xf "$2"; code=$?; rm -f "$2"; exit $code'
        unpacked = await self._exec_internal("sh", "-c", script, "sh", root.as_posix(), archive)
        if not unpacked.ok():
            context: dict[str, object] = {"output": unpacked.stderr.decode(errors="replace")}
            raise WorkspaceArchiveWriteError(path=root, context=context)

    async def _shutdown_backend(self) -> None:
        """Pauses the sandbox. `client.delete` deletes it, and `resume` continues in it."""
        await self._programs.close()
        with contextlib.suppress(NotFound):
            await self._sandbox.pause()


class SteadSandboxClient(BaseSandboxClient[SteadSandboxClientOptions]):
    """Creates, finds and deletes sandboxes. The server is found as `AsyncStead.connect` finds it."""

    backend_id = "stead"
    supports_default_options = True

    def __init__(self, client: AsyncStead | None = None, *, instrumentation: Instrumentation | None = None) -> None:
        self._client = client or AsyncStead.connect()
        self._instrumentation = instrumentation or Instrumentation()

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: SteadSandboxClientOptions | None = None,
    ) -> SandboxSession:
        chosen = options or SteadSandboxClientOptions()
        checked = self._validate_manifest_for_create(manifest or Manifest())
        session_id = uuid.uuid4()
        sandbox = await self._create(chosen)
        state = SteadSandboxSessionState(
            session_id=session_id,
            manifest=checked,
            snapshot=resolve_snapshot(snapshot, str(session_id)),
            exposed_ports=chosen.exposed_ports,
            sandbox_id=sandbox.sandbox_id,
            options=chosen,
        )
        return self._wrap_session(SteadSandboxSession(state, sandbox), instrumentation=self._instrumentation)

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """Continues in the sandbox of a session, or in another one with its snapshot if it was deleted."""
        if not isinstance(state, SteadSandboxSessionState):
            raise TypeError("expected the state of a session in Stead")
        state.assert_path_grants_rebound()
        preserved = True
        try:
            sandbox = await self._client.sandboxes.get(state.sandbox_id)
        except NotFound:
            sandbox, preserved = await self._create(state.options), False
            state.sandbox_id, state.workspace_root_ready = sandbox.sandbox_id, False
        session = SteadSandboxSession(state, sandbox)
        session._set_start_state_preserved(preserved)
        return self._wrap_session(session, instrumentation=self._instrumentation)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        inner = session._inner
        if not isinstance(inner, SteadSandboxSession):
            raise TypeError("expected a session in Stead")
        await inner.pty_terminate_all()
        await delete_sandbox(self._client, inner._sandbox)
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        return self._deserialize_session_state_payload(payload, SteadSandboxSessionState)

    async def _create(self, options: SteadSandboxClientOptions) -> AsyncSandbox:
        # The SDK adds the type to every form of its options.
        settings = options.model_dump(exclude={"exposed_ports"})
        del settings["type"]
        return await create_sandbox(self._client, settings)

    async def close(self) -> None:
        """Closes the connections. Sandboxes keep running."""
        await self._client.aclose()


def _bytes_of(data: io.IOBase, path: Path) -> bytes:
    payload = data.read()
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, (bytes, bytearray)):
        return bytes(payload)
    raise WorkspaceWriteTypeError(path=path, actual_type=type(payload).__name__)
