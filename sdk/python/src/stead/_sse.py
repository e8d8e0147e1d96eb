"""A parser of server-sent events. Does no I/O."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event of a stream."""

    name: str
    data: dict[str, Any]
    id: str | None


class EventParser:
    """Splits the bytes of a stream into events, however they are cut."""

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._reset()

    def _reset(self) -> None:
        self._name = "message"
        self._data: list[bytes] = []
        self._id: str | None = None

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Returns the events that this chunk completes."""
        self._line.append(chunk)
        if b"\n" not in chunk:
            return []
        lines = b"".join(self._line).split(b"\n")
        self._line = [lines.pop()]
        events = []
        for line in lines:
            event = self._take(line.removesuffix(b"\r"))
            if event is not None:
                events.append(event)
        return events

    def _take(self, line: bytes) -> ServerEvent | None:
        if not line:
            event = None
            if self._data:
                data = json.loads(b"\n".join(self._data))
                event = ServerEvent(self._name, data if isinstance(data, dict) else {}, self._id)
            self._reset()
            return event
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value.decode()
        elif field == b"id":
            self._id = value.decode()
        return None
