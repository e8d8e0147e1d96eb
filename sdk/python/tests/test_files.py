"""Files of a thread."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import stead
from stead import Files, Stead, Thread

BINARY = bytes(range(256)) * 5000


@pytest.fixture
def files(thread: Thread) -> Files:
    thread.exec("true")
    return thread.files


def base(files: Files, request: pytest.FixtureRequest) -> str:
    return f"/workspace/{request.node.name}"


def test_content_is_written_from_any_source(files: Files, request: pytest.FixtureRequest) -> None:
    path = base(files, request) + "/deep/file"
    parts: Iterator[bytes] = (BINARY[at : at + 1000] for at in range(0, len(BINARY), 1000))
    for content in (BINARY, io.BytesIO(BINARY), parts):
        assert files.write(path, content).size == len(BINARY)
        assert files.read(path) == BINARY
        assert b"".join(files.stream(path)) == BINARY
    assert files.write(path, "text é").size == 7
    assert files.read_text(path) == "text é"
    assert files.read(path, offset=1, limit=2) == b"ex"
    with pytest.raises(stead.NotFound):
        files.write(base(files, request) + "/missing/file", b"", create_dirs=False)


def test_writes_can_have_a_condition(files: Files, request: pytest.FixtureRequest) -> None:
    path = base(files, request)
    first = files.write(path, "1", if_absent=True)
    with pytest.raises(stead.Conflict):
        files.write(path, "2", if_absent=True)
    assert first.etag is not None
    files.write(path, "2", if_match=first.etag)
    with pytest.raises(stead.Conflict):
        files.write(path, "3", if_match=first.etag)
    assert files.read_text(path) == "2"


def test_the_tree_is_changed_and_described(files: Files, request: pytest.FixtureRequest) -> None:
    root = base(files, request)
    assert files.mkdir(f"{root}/a/b").type == "directory"
    files.write(f"{root}/a/one", "1")
    assert files.move(f"{root}/a/one", f"{root}/a/b/two").name == "two"
    assert [(e.path[len(root) :], e.type) for e in files.list(root, depth=3)] == [
        ("/a", "directory"),
        ("/a/b", "directory"),
        ("/a/b/two", "file"),
    ]
    info = files.stat(f"{root}/a/b/two")
    assert info.size == 1 and info.mode is not None and info.mode & 0o600 == 0o600 and info.modified_at is not None
    with pytest.raises(stead.FileConflict):
        files.remove(f"{root}/a")
    with pytest.raises(stead.AlreadyExists):
        files.write(f"{root}/x", "")
        files.move(f"{root}/x", f"{root}/a/b/two")
    files.remove(root, recursive=True)
    assert not files.exists(root)
    with pytest.raises(stead.BadRequest, match="contains"):
        files.read("/workspace/../../etc/passwd")


def test_a_search_finds_lines(files: Files, request: pytest.FixtureRequest) -> None:
    root = base(files, request)
    files.write(f"{root}/a.txt", "alpha\nbeta\n")
    files.write(f"{root}/b.txt", "gamma\n")
    found = files.search("mm|et", root)
    assert [(m.path[len(root) :], m.line, m.text) for m in found.items] == [
        ("/a.txt", 2, "beta"),
        ("/b.txt", 1, "gamma"),
    ]
    assert found.files == 2 and not found.truncated


def test_changes_are_watched_until_the_directory_is_removed(files: Files, request: pytest.FixtureRequest) -> None:
    root = base(files, request)
    files.mkdir(root)
    seen = []
    with pytest.raises(stead.StreamEnded):
        for event in files.watch(root):
            seen.append((event.kind, event.path[len(root) :]))
            if event.kind == "ready":
                files.write(f"{root}/new", "x")
            elif event == stead.FileEvent("created", f"{root}/new"):
                files.remove(root, recursive=True)
    assert seen[:2] == [("ready", ""), ("created", "/new")]


def test_directories_are_copied_both_ways(files: Files, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    local, root = tmp_path / "local", base(files, request)
    (local / "empty").mkdir(parents=True)
    (local / "sub").mkdir()
    (local / "sub/data.bin").write_bytes(BINARY)
    (local / "ü name.txt").write_text("é")
    os.symlink("/etc/passwd", local / "link")
    os.symlink("/etc", local / "directory-link")
    up = files.upload(local, root)
    assert (up.files, up.bytes, sorted(up.skipped)) == (2, len(BINARY) + 2, ["directory-link", "link"])
    back = tmp_path / "back"
    assert files.download(root, back).files == 2
    assert (back / "sub/data.bin").read_bytes() == BINARY
    assert (back / "ü name.txt").read_text() == "é"
    assert sorted(path.name for path in back.iterdir()) == ["empty", "sub", "ü name.txt"]
    single = files.download(f"{root}/sub/data.bin", tmp_path / "single")
    assert single.files == 1 and (tmp_path / "single").read_bytes() == BINARY


def test_a_download_writes_nothing_through_links(
    thread: Thread, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    root = base(thread.files, request)
    thread.exec("true")
    thread.files.write(f"{root}/sub/file", "from the sandbox")
    thread.exec(f"ln -s /etc/hostname .{root.removeprefix('/workspace')}/link").check()
    outside, target = tmp_path / "outside", tmp_path / "target"
    outside.mkdir()
    target.mkdir()
    (target / "sub").symlink_to(outside)
    with pytest.raises(stead.StreamEnded, match="outside"):
        thread.files.download(root, target)
    assert list(outside.iterdir()) == []
    (target / "sub").unlink()
    copied = thread.files.download(root, target)
    assert copied.skipped == ("link",) and (target / "sub/file").read_text() == "from the sandbox"


def test_files_of_one_thread_are_written_concurrently(
    client: Stead, files: Files, request: pytest.FixtureRequest
) -> None:
    root = base(files, request)
    with ThreadPoolExecutor(8) as pool:
        written = pool.map(lambda number: files.write(f"{root}/{number}", str(number)), range(40))
        assert sum(one.size for one in written) == 10 + 30 * 2
    assert len(list(files.list(root))) == 40
