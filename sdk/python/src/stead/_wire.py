"""Parts of requests and responses that need no I/O."""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from ._errors import ConnectionFailed
from ._retry import is_untrusted

# The server sends a heartbeat every 10 s on each stream.
STREAM_TIMEOUT = 30.0
CONNECT_TIMEOUT = 10.0
JSON_HEADERS = {"content-type": "application/json", "accept": "application/json"}


def keepalive_options() -> list[tuple[int, int, int]]:
    """Socket options that notice a vanished peer in half a minute, also while a command runs in silence."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


@dataclass(frozen=True, slots=True)
class Reply:
    """A successful response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def fresh_key() -> str:
    """Returns an idempotency key, or the id of a write."""
    return uuid.uuid4().hex


def segment(name: str) -> str:
    """Returns a name as one segment of a path."""
    if name in ("", ".", ".."):
        raise ValueError(f"{name!r} is not a valid name")
    return quote(name, safe="")


def with_query(path: str, params: Mapping[str, Any] | None) -> str:
    """Returns a path with the parameters that have a value."""
    given = {}
    for name, value in (params or {}).items():
        if value is not None:
            given[name] = str(value).lower() if isinstance(value, bool) else value
    return f"{path}?{urlencode(given, quote_via=quote)}" if given else path


def given(**fields: Any) -> dict[str, Any]:
    """Returns the fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}


def milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, round(seconds * 1000))


def connection_failed(url: str, error: Exception, *, not_sent: bool) -> ConnectionFailed:
    """Returns the error for a request that got no response."""
    if is_untrusted(error):
        return ConnectionFailed(f"the certificate of {url} is not trusted; pass cacert=FILE: {error}")
    if not_sent:
        return ConnectionFailed(f"no server at {url}; start one with `stead serve`: {error}")
    return ConnectionFailed(f"{url} closed the connection without a response: {error or type(error).__name__}")
