"""Parts of requests and responses that need no I/O."""

from __future__ import annotations

import json
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


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long, in seconds, the server may not read, not respond (`None` for any time), and not continue."""

    write: float
    head: float | None
    read: float


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
