"""HTTP/1.1 without a network: responses however they are framed and cut, and what is not HTTP."""

from __future__ import annotations

import httpx
import pytest

from stead._http1 import MAX_CHUNK_LINE_BYTES, MAX_HEAD_BYTES, header_lines, take_head

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n5;name=value\r\nhello\r\n00A \r\n, chunks!\n\r\n"
SIZED = b"HTTP/1.1 200\r\nX-Colon: a:b\r\ncontent-length:\t6 \r\n\r\nhello\n"


def read(pieces: list[bytes]) -> tuple[int, bytes, bool, str | None]:
    """Returns status, body, whether the connection can be used again, and a header, like a connection that receives
    the pieces and then ends."""
    received = b""
    while (found := take_head(received)) is None:
        received += pieces.pop(0)
    head, rest = found
    parts = []
    for piece in [rest, *pieces]:
        if piece and not head.body.complete:
            parts += head.body.take(piece)
        elif piece:
            head.body.overrun = True
    if not head.body.complete:
        head.body.end()
    assert all(parts)
    reusable = head.keep_alive and not head.body.overrun
    return head.status, b"".join(parts), reusable, head.headers.get("x-colon")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SIZED, (200, b"hello\n", True, "a:b")),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 x\r\nLink: y\r\n\r\n" + SIZED, (200, b"hello\n", True, "a:b")),
        (CHUNKED + b"0\r\n\r\n", (200, b"hello, chunks!\n", True, None)),
        (CHUNKED + b"0;last\r\nTrailer: x\r\nAnother: y\r\n\r\n", (200, b"hello, chunks!\n", True, None)),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", (200, b"until the end", False, None)),
        (SIZED.replace(b"X-Colon: a:b", b"Connection: Close"), (200, b"hello\n", False, None)),
        (SIZED.replace(b"HTTP/1.1", b"HTTP/1.0"), (200, b"hello\n", False, "a:b")),
        (SIZED + b"!", (200, b"hello\n", False, "a:b")),
        (CHUNKED + b"0\r\n\r\n!", (200, b"hello, chunks!\n", False, None)),
        (
            CHUNKED.replace(b"\r\n", b"\r\nContent-Length: 3\r\n", 1) + b"0\r\n\r\n",
            (200, b"hello, chunks!\n", False, None),
        ),
        (b"HTTP/1.1 204 No Content\r\n\r\n", (204, b"", True, None)),
        (b"HTTP/1.1 404 Not Found\r\nX-Colon: a\r\nx-colon: b\r\ncontent-length: 0\r\n\r\n", (404, b"", True, "a, b")),
    ],
)
def test_a_response_is_the_same_however_it_is_cut(text: bytes, expected: object) -> None:
    assert read([text]) == expected
    assert read([text[index : index + 1] for index in range(len(text))]) == expected
    for cut in range(1, len(text)):
        assert read([text[:cut], text[cut:]]) == expected


@pytest.mark.parametrize("text", [SIZED, CHUNKED + b"0\r\n\r\n"])
def test_a_response_without_its_end_is_an_error(text: bytes) -> None:
    for cut in range(text.index(b"\r\n\r\n") + 4, len(text)):
        with pytest.raises(httpx.RemoteProtocolError, match="the connection ended"):
            read([text[:cut]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"220 mail.example ESMTP\r\n\r\n", "not a response"),
        (b"HTTP/2 200\r\n\r\n", "not a response"),
        (b"HTTP/1.1 20x\r\n\r\n", "not a response"),
        (b"HTTP/1.1 200\r\nno colon\r\n\r\n", "not a header"),
        (b"HTTP/1.1 200\r\nA: b\r\n folded: c\r\n\r\n", "not a header"),
        (b"HTTP/1.1 200\r\nContent-Length : 1\r\n\r\n", "not a header"),
        (b"HTTP/1.1 200\r\nContent-Length: +1\r\n\r\n", "not a content length"),
        (b"HTTP/1.1 200\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "not a content length"),
        (b"HTTP/1.1 200\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "not a transfer encoding"),
        (b"HTTP/1.1 200\r\nA: " + b"b" * MAX_HEAD_BYTES, "longer than"),
        (CHUNKED + b"-1\r\n", "not the size of a chunk"),
        (CHUNKED + b"0x1\r\n", "not the size of a chunk"),
        (CHUNKED + b"1\r\nab\r\n", "longer than its size"),
        (CHUNKED + b"1" * (MAX_CHUNK_LINE_BYTES + 1), "has no size"),
    ],
)
def test_what_is_not_http_is_refused(text: bytes, message: str) -> None:
    with pytest.raises(httpx.RemoteProtocolError, match=message):
        read([text])


def test_a_header_cannot_start_another_one() -> None:
    for value in ("a\r\nb: c", "a\nb: c", "a\rb", "a\0", "é"):
        with pytest.raises(ValueError, match="cannot be sent as x-key"):
            header_lines({"x-key": value})
