"""An environment for Harbor, the runner of terminal-bench.

    harbor run --environment-import-path stead.adapters.harbor:SteadEnvironment --dataset ... --agent ...

A task names its image by `docker_image`. A task with a Dockerfile needs `--ek image=...` or `--ek snapshot=...`: images
are not built here. `stead attach ID` shows the environment of a trial that runs.
"""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.environments.tar_transfer import (
    extract_dir_from_bytes,
    pack_dir_to_bytes,
    remote_pack_command,
    remote_unpack_command,
)

from .. import AsyncSandbox, AsyncStead
from .._wire import fresh_key
from ._programs import Programs
from ._sandboxes import create_sandbox, delete_sandbox, write_file


class SteadEnvironment(BaseEnvironment):
    """The sandbox of a trial."""

    def __init__(
        self,
        *arguments: Any,
        image: str | None = None,
        snapshot: str | None = None,
        provider: str | None = None,
        **options: Any,
    ) -> None:
        """`image` and `snapshot` replace the definition of the task; an empty `image` is the server's default."""
        self._image = image
        self._snapshot = snapshot
        self._provider = provider
        self._client: AsyncStead | None = None
        self._sandbox: AsyncSandbox | None = None
        self._programs: Programs | None = None
        super().__init__(*arguments, **options)

    @staticmethod
    def type() -> str:
        return "stead"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(disable_internet=True)

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True, fractional_cpus=True)

    def _validate_definition(self) -> None:
        if self._image is None and self._snapshot is None and not self.task_env_config.docker_image:
            raise ValueError(
                f"{self.environment_dir} names no image; set docker_image in task.toml, or pass --ek image=IMAGE or "
                "--ek snapshot=NAME"
            )

    async def start(self, force_build: bool) -> None:
        image = self._image if self._image is not None else self.task_env_config.docker_image
        self._client = AsyncStead.connect()
        try:
            settings = {
                "provider": self._provider,
                "image": None if self._snapshot else image or None,
                "snapshot": self._snapshot,
                "cpus": self._effective_cpus,
                "memory": f"{self._effective_memory_mb}m" if self._effective_memory_mb else None,
                "disk": f"{self._effective_storage_mb}m" if self._effective_storage_mb else None,
                "egress": {"deny": ["0.0.0.0/0", "::/0"]} if self._network_disabled else None,
                "env": self._startup_env() or None,
                "labels": {"framework": "harbor", "session": self.session_id[:63]},
            }
            self._sandbox = await create_sandbox(self._client, settings)
            self._programs = Programs(self._sandbox)
            if self.task_env_config.workdir:
                await self._checked(f"mkdir -p {shlex.quote(self.task_env_config.workdir)}")
            await self.ensure_dirs(self._mount_targets(writable_only=True))
            await self._upload_environment_dir_after_start()
        except BaseException:
            await self.stop(delete=True)
            raise

    async def stop(self, delete: bool) -> None:
        client, sandbox = self._client, self._sandbox
        self._client = self._sandbox = self._programs = None
        if client is None:
            return
        try:
            if sandbox is not None and delete:
                await delete_sandbox(client, sandbox)
            elif sandbox is not None:
                await sandbox.suspend()
        finally:
            await client.aclose()

    def _started(self) -> tuple[AsyncSandbox, Programs]:
        if self._sandbox is None or self._programs is None:
            raise RuntimeError("the environment is not started")
        return self._sandbox, self._programs

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        _, programs = self._started()
        completed = await programs.run(
            # Agents rely on features of Bash such as `pipefail`.
            ["/bin/bash", "-c", command],
            cwd=cwd or self.task_env_config.workdir,
            env=self._merge_env(env),
            timeout=timeout_sec,
            user=self._resolve_user(user),
        )
        return ExecResult(stdout=completed.text, stderr=completed.error_text, return_code=completed.code)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        sandbox, programs = self._started()
        await write_file(sandbox, programs, target_path, await asyncio.to_thread(Path(source_path).read_bytes))

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        sandbox, programs = self._started()
        archive = f"/tmp/.stead-{fresh_key()}.tar.gz"
        packed = await asyncio.to_thread(pack_dir_to_bytes, source_dir, compress=True)
        await write_file(sandbox, programs, archive, packed.getvalue())
        await self._checked(f"{remote_unpack_command(archive, target_dir)}; code=$?; rm -f {archive}; exit $code")

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        sandbox, _ = self._started()
        await sandbox.files.download(source_path, target_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        sandbox, _ = self._started()
        archive = f"/tmp/.stead-{fresh_key()}.tar.gz"
        await self._checked(remote_pack_command(source_dir, archive))
        content = await sandbox.files.read(archive)
        await asyncio.to_thread(extract_dir_from_bytes, content, target_dir)
        await self._checked(f"rm -f {shlex.quote(archive)}")

    async def _checked(self, command: str) -> None:
        _, programs = self._started()
        completed = await programs.run(["/bin/sh", "-c", command])
        if completed.code != 0:
            raise RuntimeError(f"{command} exited with {completed.code}: {completed.error_text.strip()}")
