"""The position in the output of a command. Turns what arrives, live or by offset, into events without
repetitions. Does no I/O."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

from ._models import Gap, Output, StreamName

STREAMS: tuple[StreamName, StreamName] = ("stdout", "stderr")


def incomplete_tail(data: bytes) -> int:
    """Returns how many bytes at the end belong to a UTF-8 character that is not complete.

    >>> incomplete_tail("aé".encode()), incomplete_tail("aé".encode()[:-1]), incomplete_tail(b"\\xff")
    (0, 1, 0)
    """
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 2 if byte & 0xE0 == 0xC0 else 3 if byte & 0xF0 == 0xE0 else 4 if byte & 0xF8 == 0xF0 else 1
        return back if length > back else 0
    return 0


def event_bytes(data: Mapping[str, Any]) -> bytes:
    """Returns the data of an event, which is text or base64."""
    text = data.get("data")
    return text.encode() if text is not None else base64.b64decode(data.get("data_base64", ""))


class Position:
    """How far each stream was received."""

    def __init__(self, stdout: int = 0, stderr: int = 0) -> None:
        self._next: dict[StreamName, int] = {"stdout": stdout, "stderr": stderr}
        self._held: dict[StreamName, bytes] = {"stdout": b"", "stderr": b""}

    def next(self, stream: StreamName) -> int:
        """The offset of the first byte that was not received."""
        return self._next[stream]

    def take(self, stream: StreamName, offset: int, data: bytes) -> Iterator[Output | Gap]:
        """Returns the events for bytes that start at an offset. Bytes that were received before are dropped."""
        known = self._next[stream]
        if offset > known:
            yield from self.flush(stream)
            yield Gap(stream, known, offset)
        else:
            data = data[known - offset :]
            offset = known
        if not data:
            self._next[stream] = max(known, offset)
            return
        self._next[stream] = offset + len(data)
        held = self._held[stream]
        whole = held + data
        cut = len(whole) - incomplete_tail(whole)
        self._held[stream] = whole[cut:]
        if cut:
            yield Output(stream, offset - len(held), whole[:cut])

    def flush(self, stream: StreamName) -> Iterator[Output | Gap]:
        """Returns bytes that were held back because they might be the start of a character."""
        held = self._held[stream]
        if held:
            self._held[stream] = b""
            yield Output(stream, self._next[stream] - len(held), held)
