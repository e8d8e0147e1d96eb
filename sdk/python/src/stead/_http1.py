"""HTTP/1.1 as bytes: the head of a request, the head of a response, and where its body ends. Does no I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import httpx

MAX_HEAD_BYTES = 100 << 10
MAX_CHUNK_LINE_BYTES = 4 << 10

_STATUS_LINE = re.compile(r"HTTP/1\.([01]) ([1-9][0-9]{2})(?: .*)?")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?")


def header_lines(headers: Mapping[str, str]) -> str:
    """Returns the lines of headers. Their names are ours, but values may be a caller's.

    >>> header_lines({"host": "example", "accept": "*/*"})
    'host: example\\r\\naccept: */*\\r\\n'
    """
    lines = ""
    for name, value in headers.items():
        # A line break would start another header, or another request.
        if "\r" in value or "\n" in value or "\0" in value or not value.isascii():
            raise ValueError(f"{value!r} cannot be sent as {name}: only ASCII without line breaks can")
        lines += f"{name}: {value}\r\n"
    return lines


@dataclass(slots=True)
class Head:
    """The head of a response."""

    status: int
    #: By their names in lower case.
    headers: dict[str, str]
    #: Whether the server keeps the connection open after the response.
    keep_alive: bool
    body: Body


def take_head(received: bytes) -> tuple[Head, bytes] | None:
    """Returns the head of a response and the bytes after it; `None` if it is not complete.

    Interim responses (1xx) are skipped.
    """
    while True:
        end = received.find(b"\r\n\r\n")
        if end > MAX_HEAD_BYTES or (end < 0 and len(received) > MAX_HEAD_BYTES):
            raise httpx.RemoteProtocolError(f"the head of the response is longer than {MAX_HEAD_BYTES} bytes")
        if end < 0:
            return None
        head = _parse_head(received[:end].decode("latin-1"))
        received = received[end + 4 :]
        if head.status >= 200:
            return head, received


def _parse_head(text: str) -> Head:
    first, *lines = text.split("\r\n")
    found = _STATUS_LINE.fullmatch(first)
    if found is None:
        raise httpx.RemoteProtocolError(f"not a response of HTTP/1.1: {first[:80]!r}")
    version, status = found[1], int(found[2])
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not _TOKEN.fullmatch(name):
            raise httpx.RemoteProtocolError(f"not a header: {line[:80]!r}")
        name, value = name.lower(), value.strip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    keep_alive = version == "1" and headers.get("connection", "").lower() != "close"
    length, encoding = headers.get("content-length"), headers.get("transfer-encoding")
    body: Body
    if status in (204, 304) or status < 200:
        body = SizedBody(0)
    elif encoding is not None:
        if encoding.lower() != "chunked":
            raise httpx.RemoteProtocolError(f"not a transfer encoding that was offered: {encoding[:80]!r}")
        # With a length, too, a proxy before the server may see another end.
        body, keep_alive = ChunkedBody(), keep_alive and length is None
    elif length is not None:
        if not (length.isascii() and length.isdigit()):
            raise httpx.RemoteProtocolError(f"not a content length: {length[:80]!r}")
        body = SizedBody(int(length))
    else:
        body, keep_alive = UntilCloseBody(), False
    return Head(status, headers, keep_alive, body)


class Body(Protocol):
    """Separates the body of a response from what surrounds it."""

    #: Whether all of the body was taken.
    complete: bool
    #: Whether there were bytes after the end of the body.
    overrun: bool

    def take(self, data: bytes) -> list[bytes]:
        """Returns the parts of the body in the next bytes of the connection."""

    def end(self) -> None:
        """The connection ended; raises if the body is not complete."""


class SizedBody:
    """A body with a `Content-Length`."""

    def __init__(self, size: int) -> None:
        self._missing = size
        self.complete = size == 0
        self.overrun = False

    def take(self, data: bytes) -> list[bytes]:
        if len(data) > self._missing:
            self.overrun = True
            data = data[: self._missing]
        self._missing -= len(data)
        self.complete = self._missing == 0
        return [data] if data else []

    def end(self) -> None:
        raise httpx.RemoteProtocolError(f"the connection ended {self._missing} bytes before the response did")


class ChunkedBody:
    """A body in chunks, each with its length."""

    def __init__(self) -> None:
        self.complete = False
        self.overrun = False
        # Of the current chunk.
        self._missing = 0
        # What the next line is: the size of a chunk, the end of one, or a trailer.
        self._line = "size"
        self._rest = b""

    def take(self, data: bytes) -> list[bytes]:
        data = self._rest + data if self._rest else data
        parts, start = [], 0
        while not self.complete and start < len(data):
            if self._missing:
                part = data[start : start + self._missing]
                parts.append(part)
                start += len(part)
                self._missing -= len(part)
                continue
            end = data.find(b"\r\n", start)
            if end < 0:
                if len(data) - start > MAX_CHUNK_LINE_BYTES:
                    raise httpx.RemoteProtocolError("a chunk of the response has no size")
                break
            self._take_line(data[start:end])
            start = end + 2
        self._rest = data[start:]
        self.overrun = self.complete and bool(self._rest)
        return parts

    def _take_line(self, line: bytes) -> None:
        if self._line == "end":
            if line:
                raise httpx.RemoteProtocolError("a chunk of the response is longer than its size")
            self._line = "size"
        elif self._line == "size":
            found = _CHUNK_SIZE.fullmatch(line)
            if found is None:
                raise httpx.RemoteProtocolError(f"not the size of a chunk: {line[:80]!r}")
            self._missing = int(found[1], 16)
            self._line = "end" if self._missing else "trailer"
        else:
            self.complete = not line

    def end(self) -> None:
        raise httpx.RemoteProtocolError("the connection ended before the response did")


class UntilCloseBody:
    """A body without a length, which ends with the connection."""

    def __init__(self) -> None:
        self.complete = False
        self.overrun = False

    def take(self, data: bytes) -> list[bytes]:
        return [data]

    def end(self) -> None:
        self.complete = True
