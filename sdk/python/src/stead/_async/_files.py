"""The files of a thread: its workspace, its memories, and the file system of its instance."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterable, AsyncIterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

import httpx

from .._errors import Conflict, NotFound, StreamEnded
from .._models import Copied, FileEvent, FileInfo, SearchResult, WrittenFile
from .._wire import fresh_key, segment
from ._http import AsyncBody, AsyncHttp

_CHUNK_BYTES = 256 << 10


async def _chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    while chunk := file.read(_CHUNK_BYTES):
        yield chunk


class AsyncFiles:
    """The files of a thread.

    `/workspace` is the directory of the project, where shells start; `/memories/hot` and `/memories/persistent` are
    its memories; every other absolute path is the instance's own file system.
    """

    def __init__(self, http: AsyncHttp, thread_id: str) -> None:
        self._http = http
        self._base = f"/api/threads/{segment(thread_id)}/fs"

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """Returns the content of a file, or a part of it.

        >>> files = client.thread("docs").files
        >>> await files.write("/workspace/a.txt", "hello")
        WrittenFile(path='/workspace/a.txt', size=5, ...)
        >>> await files.read("/workspace/a.txt", offset=1, limit=3)
        b'ell'
        """
        params = {"path": path, "offset": offset or None, "limit": limit}
        return (await self._http.request("GET", f"{self._base}/read", params=params)).body

    async def read_text(self, path: str) -> str:
        """Returns the content of a file that is UTF-8."""
        return (await self.read(path)).decode()

    async def stream(self, path: str, *, offset: int = 0) -> AsyncIterator[bytes]:
        """Yields the content of a file in parts, without holding it in memory.

        Continues after a broken connection. Raises `Conflict` if the file was changed in the meantime.

        >>> parts = [part async for part in client.thread("docs").files.stream("/etc/hostname")]
        """
        etag: str | None = None
        attempts = self._http.attempts()
        while True:
            params = {"path": path, "offset": offset}
            response = await self._http.open("GET", f"{self._base}/read", params=params, attempts=attempts)
            try:
                current = response.headers.get("etag")
                if etag is not None and current != etag:
                    detail = f"{path} was changed while it was read"
                    raise Conflict(detail, code="conflict", status=409)
                etag = current
                async for chunk in response.aiter_raw():
                    attempts.succeeded()
                    offset += len(chunk)
                    yield chunk
                return
            except httpx.TransportError as error:
                wait = attempts.delay(error, repeatable=True, known_server=True)
                if wait is None:
                    raise self._http.explain(error) from error
            finally:
                await response.aclose()
            await asyncio.sleep(wait)

    async def write(
        self,
        path: str,
        content: str | bytes | BinaryIO | AsyncIterable[bytes],
        *,
        create_dirs: bool = True,
        if_match: str | None = None,
        if_absent: bool = False,
    ) -> WrittenFile:
        """Writes a whole file atomically: readers see the old content or the new one, never a part.

        `content` may also be a binary file or an iterable of bytes, which is sent as it is read. With `if_match`
        the file must still have this `etag`; with `if_absent` it must not exist. Otherwise `VersionConflict` or
        `AlreadyExists` is raised.
        """
        headers = {"content-type": "application/octet-stream"}
        if if_match is not None:
            headers["if-match"] = if_match
        if if_absent:
            headers["if-none-match"] = "*"
        once = False
        body: bytes | AsyncBody
        if isinstance(content, (str, bytes)):
            body = content.encode() if isinstance(content, str) else content
        elif hasattr(content, "read"):
            file = cast(BinaryIO, content)
            start = file.tell() if file.seekable() else None
            once = start is None

            def body() -> AsyncIterable[bytes]:
                if start is not None:
                    file.seek(start)
                return _chunks(file)
        else:
            parts = content
            once = True

            def body() -> AsyncIterable[bytes]:
                return parts

        reply = await self._http.request(
            "PUT",
            f"{self._base}/write",
            params={"path": path, "create_dirs": create_dirs},
            headers=headers,
            content=body,
            # With a condition, a repetition would fail on the file that the first attempt wrote.
            repeatable=if_match is None and not if_absent,
            once=once,
        )
        return WrittenFile.from_json(reply.json())

    async def list(self, path: str = "/workspace", *, depth: int = 1) -> AsyncIterator[FileInfo]:
        """Yields the entries of a directory. With a `depth`, each directory is followed by its own entries.

        >>> files = client.thread("docs").files
        >>> _ = await files.mkdir("/workspace/docs/src")
        >>> [entry.name async for entry in files.list("/workspace/docs")]
        ['src']
        """
        params = {"path": path, "depth": depth, "limit": 1000}
        async for item in self._http.pages(f"{self._base}/list", params):
            yield FileInfo.from_json(item)

    async def stat(self, path: str) -> FileInfo:
        """Returns the metadata of a file or directory. Symbolic links are not followed."""
        return FileInfo.from_json(await self._http.get(f"{self._base}/stat", {"path": path}))

    async def exists(self, path: str) -> bool:
        """Returns whether there is a file or directory at a path."""
        try:
            await self.stat(path)
        except NotFound:
            return False
        return True

    async def mkdir(self, path: str, *, create_dirs: bool = True) -> FileInfo:
        """Creates a directory. With `create_dirs`, also its parents, and an existing directory is accepted."""
        body = {"path": path, "create_dirs": create_dirs}
        return FileInfo.from_json(await self._http.post(f"{self._base}/mkdir", body))

    async def move(self, source: str, target: str, *, overwrite: bool = False) -> FileInfo:
        """Moves or renames a file or directory."""
        body = {"from": source, "to": target, "overwrite": overwrite}
        return FileInfo.from_json(await self._http.post(f"{self._base}/move", body))

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        """Deletes a file, or a directory with `recursive`. Symbolic links are deleted, not followed."""
        await self._http.delete(f"{self._base}/remove", {"path": path, "recursive": recursive})

    async def search(self, pattern: str, path: str = "/workspace", *, limit: int = 100) -> SearchResult:
        """Searches the content of files with a regular expression, line by line.

        >>> files = client.thread("docs").files
        >>> _ = await files.write("/workspace/notes.txt", "one\\ntwo\\nthree\\n")
        >>> [(match.line, match.text) for match in (await files.search("^t", "/workspace/notes.txt")).items]
        [(2, 'two'), (3, 'three')]
        """
        params = {"path": path, "pattern": pattern, "limit": limit}
        return SearchResult.from_json(await self._http.get(f"{self._base}/search", params))

    async def watch(self, path: str = "/workspace", *, recursive: bool = False) -> AsyncIterator[FileEvent]:
        """Yields changes of files. The first event is `ready`; changes after it are reported.

        After a broken connection there is a `lost` event, because changes in between are not known. Raises
        `StreamEnded` when the watched path is removed.
        """
        was_ready = False
        params = {"path": path, "recursive": recursive}
        async for event in self._http.subscribe(f"{self._base}/watch", params):
            if event.name == "gone":
                raise StreamEnded(event.data.get("detail", f"{path} was removed"))
            if event.name == "reconnected":
                continue
            kind = "lost" if event.name == "ready" and was_ready else event.name
            was_ready = was_ready or event.name == "ready"
            yield FileEvent(kind, event.data.get("path", path))

    async def upload(self, source: str | os.PathLike[str], target: str) -> Copied:
        """Copies a local file or directory into the thread.

        Files that exist are replaced, others stay. Symbolic links are not copied. New files have the default
        permissions.

        >>> import pathlib, tempfile
        >>> local = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (local / "main.py").write_text("print('hello')")
        >>> thread = await client.threads.create("docs-upload")
        >>> await thread.files.upload(local, "/workspace/app")
        Copied(files=1, bytes=14, skipped=())
        >>> (await thread.exec("python3 app/main.py")).stdout
        'hello\\n'
        """
        root = Path(source)
        if not root.is_dir():
            with root.open("rb") as file:
                written = await self.write(target, file)
            return Copied(1, written.size, ())
        await self.mkdir(target)
        files, size, skipped = 0, 0, []
        for directory, folders, names in os.walk(root):
            inner = Path(directory).relative_to(root)
            base = PurePosixPath(target, *inner.parts)
            for folder in list(folders):
                if Path(directory, folder).is_symlink():
                    folders.remove(folder)
                    skipped.append(str(inner / folder))
                else:
                    await self.mkdir(str(base / folder))
            for name in names:
                path = Path(directory, name)
                if path.is_symlink() or not path.is_file():
                    skipped.append(str(inner / name))
                    continue
                with path.open("rb") as file:
                    size += (await self.write(str(base / name), file)).size
                files += 1
        return Copied(files, size, tuple(skipped))

    async def download(self, source: str, target: str | os.PathLike[str]) -> Copied:
        """Copies a file or directory of the thread to this machine, with its permissions.

        Each file appears completely or not at all. Symbolic links are not copied, so that no file is written
        outside of `target`.
        """
        root = Path(target)
        info = await self.stat(source)
        if info.type != "directory":
            root.parent.mkdir(parents=True, exist_ok=True)
            return Copied(1, await self._save(info, root), ())
        root.mkdir(parents=True, exist_ok=True)
        files, size, skipped = 0, 0, []
        async for entry in self.list(source, depth=64):
            inner = PurePosixPath(entry.path).relative_to(PurePosixPath(info.path))
            local = root.joinpath(*inner.parts)
            # Checked for each entry: a directory here may have been a link before.
            if ".." in inner.parts or not local.parent.resolve().is_relative_to(root.resolve()):
                raise StreamEnded(f"{entry.path} would be written outside of {root}")
            if entry.type == "directory" and not local.is_symlink():
                local.mkdir(exist_ok=True)
            elif entry.type == "file":
                size += await self._save(entry, local)
                files += 1
            else:
                skipped.append(str(inner))
        return Copied(files, size, tuple(skipped))

    async def _save(self, info: FileInfo, target: Path) -> int:
        """Downloads one file beside its target and renames it; returns its size."""
        beside = target.with_name(f".{target.name}.{fresh_key()[:8]}")
        try:
            with beside.open("xb") as file:
                async for part in self.stream(info.path):
                    file.write(part)
                size = file.tell()
            if info.mode is not None:
                beside.chmod(info.mode & 0o777)
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
        return size
