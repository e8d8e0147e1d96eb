"""Paths and file errors as ordinary Python programs know them."""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Iterator
from contextlib import contextmanager

from .._errors import ApiError, Forbidden, NotFound
from .._models import FileInfo

WORKSPACE = "/workspace"
OWNER_READ = 0o400
OWNER_WRITE = 0o200

_ERRNO_BY_CODE = {
    "is_a_directory": errno.EISDIR,
    "not_a_directory": errno.ENOTDIR,
    "not_empty": errno.ENOTEMPTY,
    "not_a_file": errno.EINVAL,
    "already_exists": errno.EEXIST,
    "quota_exceeded": errno.EDQUOT,
    "disk_full": errno.ENOSPC,
}


def absolute(path: str | os.PathLike[str], base: str = WORKSPACE) -> str:
    """Returns a path of the sandbox as an absolute one, without `.` and `..`."""
    return posixpath.normpath(posixpath.join(base, os.fspath(path)))


@contextmanager
def os_errors(path: str) -> Iterator[None]:
    """Raises errors of the file API as `FileNotFoundError`, `IsADirectoryError` and so on."""
    try:
        yield
    except ApiError as error:
        if isinstance(error, NotFound):
            number: int | None = errno.ENOENT
        elif isinstance(error, Forbidden):
            number = errno.EACCES
        else:
            number = _ERRNO_BY_CODE.get(error.code)
        if number is None:
            raise
        raise OSError(number, os.strerror(number), path) from error


def check_permission(info: FileInfo, bit: int, path: str) -> None:
    """Raises `PermissionError` if the mode of a file denies access to its owner.

    Programs in a sandbox often run as root, whom the kernel never refuses. Frameworks expect a file that was made
    unreadable or read-only to stay so.
    """
    if info.type == "file" and info.mode is not None and not info.mode & bit:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
