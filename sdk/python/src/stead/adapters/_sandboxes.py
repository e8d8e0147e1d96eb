"""Sandboxes whose workspace is their own.

Sandboxes of one project share its workspace. Frameworks expect that nothing is shared, so each sandbox that an adapter
creates gets a project, unless the settings name one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from .._async._client import AsyncStead
from .._async._sandboxes import AsyncSandbox
from .._errors import Forbidden, NotFound
from .._sync._client import Stead
from .._sync._sandboxes import Sandbox
from .._wire import segment
from ._programs import Programs

T = TypeVar("T")

_LABEL = "own_project"
_PROJECT = {"prefix": "agent", "description": "The workspace of one sandbox"}


def _with_project(settings: dict[str, Any], project_id: str) -> dict[str, Any]:
    labels = {**(settings.get("labels") or {}), _LABEL: "true"}
    return {**settings, "project_id": project_id, "labels": labels}


async def create_sandbox(client: AsyncStead, settings: dict[str, Any]) -> AsyncSandbox:
    """Creates a sandbox, in a project of its own unless the settings name a project or the sandbox."""
    if settings.get("project_id") or settings.get("name"):
        return await client.sandboxes.create(**settings)
    project_id = (await client._http.post("/api/projects", _PROJECT))["project_id"]
    try:
        return await client.sandboxes.create(**_with_project(settings, project_id))
    except BaseException:
        await client._http.delete(f"/api/projects/{segment(project_id)}")
        raise


async def delete_sandbox(client: AsyncStead, sandbox: AsyncSandbox) -> None:
    """Deletes a sandbox, with its project if it has one of its own. Accepts that there is none."""
    with suppress(NotFound):
        await sandbox.delete()
    if sandbox.info.labels.get(_LABEL):
        with suppress(NotFound):
            await client._http.delete(f"/api/projects/{segment(sandbox.info.project_id)}")


def create_sandbox_sync(client: Stead, settings: dict[str, Any]) -> Sandbox:
    """The same as `create_sandbox`."""
    if settings.get("project_id") or settings.get("name"):
        return client.sandboxes.create(**settings)
    project_id = client._http.post("/api/projects", _PROJECT)["project_id"]
    try:
        return client.sandboxes.create(**_with_project(settings, project_id))
    except BaseException:
        client._http.delete(f"/api/projects/{segment(project_id)}")
        raise


def delete_sandbox_sync(client: Stead, sandbox: Sandbox) -> None:
    """The same as `delete_sandbox`."""
    with suppress(NotFound):
        sandbox.delete()
    if sandbox.info.labels.get(_LABEL):
        with suppress(NotFound):
            client._http.delete(f"/api/projects/{segment(sandbox.info.project_id)}")


async def follow_links(programs: Programs, path: str, action: Callable[[str], Awaitable[T]]) -> T:
    """Calls a function of the file API, with the target of a link if the API refuses to follow it.

    The API does not leave the workspace by a link, not even by an absolute one that leads back to the workspace.
    """
    try:
        return await action(path)
    except Forbidden:
        resolved = (await programs.run(["readlink", "-f", "--", path])).text.removesuffix("\n")
        if resolved in ("", path):
            raise
        return await action(resolved)


async def write_file(sandbox: AsyncSandbox, programs: Programs, path: str, content: str | bytes) -> None:
    """Writes a file anywhere in a sandbox."""
    await follow_links(programs, path, lambda target: sandbox.files.write(target, content))
