"""Every error that the client raises, and the table from the server's codes to classes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._models import ExecResult


class SteadError(Exception):
    """The base class of all errors of this package."""


class ConnectionFailed(SteadError, ConnectionError):
    """The server could not be reached, or closed the connection, and retrying did not help."""


class Timeout(SteadError, TimeoutError):
    """Something did not happen within the time that the caller gave it."""


class StreamEnded(SteadError):
    """A stream ended although more was expected, for example because a watched directory was removed."""


class CommandFailed(SteadError):
    """Raised by `ExecResult.check` if a command did not exit with 0."""

    def __init__(self, result: ExecResult) -> None:
        how = f"exited with {result.exit_code}" if result.exit_code is not None else f"is {result.status}"
        tail = result.stderr.strip()[-500:]
        super().__init__(f"the command {how}" + (f": {tail}" if tail else ""))
        self.result = result


@dataclass(frozen=True, slots=True)
class FieldError:
    """An invalid field of a request: a JSON pointer, and what is wrong with its value."""

    pointer: str
    detail: str


class ApiError(SteadError):
    """An error response of the server.

    `code` identifies the kind of error and never changes its meaning; `detail` is for people. `request_id` is
    the server's `X-Request-Id`, if it sent one. `errors` lists the invalid fields of a bad request.
    """

    def __init__(
        self,
        detail: str,
        *,
        code: str,
        status: int,
        request_id: str | None = None,
        errors: tuple[FieldError, ...] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{detail} ({code}, {status})")
        self.detail = detail
        self.code = code
        self.status = status
        self.request_id = request_id
        self.errors = errors
        self.retry_after = retry_after


class BadRequest(ApiError):
    """The request is not valid (400, 405, 408, 413, 415, 416, 422)."""


class Unauthorized(ApiError):
    """The token is missing or wrong (401)."""


class Forbidden(ApiError):
    """The caller may not do this (403)."""


class NotFound(ApiError):
    """There is no such resource (404)."""


class Gone(ApiError):
    """The resource is no longer available (410)."""


class Conflict(ApiError):
    """The request conflicts with the current state (409). Subclasses say how."""


class Busy(Conflict):
    """Another command runs in the terminal."""


class VersionConflict(Conflict):
    """The resource was changed concurrently."""


class LeasePaused(Conflict):
    """The instance is paused, and the request asked not to resume it."""


class NotDriver(Conflict):
    """Another client has control of the terminal."""


class NotSupported(Conflict):
    """The provider cannot do this."""


class NotRunning(Conflict):
    """The command, program or instance is not running."""


class NotWaiting(Conflict):
    """No program waits for the input."""


class EchoOn(Conflict):
    """The terminal would show the secret."""


class OutcomeUnknown(Conflict):
    """The server was stopped during the request. Check its outcome before you repeat it."""


class AlreadyExists(Conflict):
    """There already is a resource with this name."""


class FileConflict(Conflict):
    """The path is of another kind than required: a file, a directory, or a directory that is not empty."""


class QuotaExceeded(Conflict):
    """A quota would be exceeded."""


class KeyReused(BadRequest):
    """The idempotency key belongs to a request with another target or body."""


class RateLimited(ApiError):
    """There are too many requests or resources (429)."""


class Unavailable(ApiError):
    """The server cannot handle the request at the moment (503)."""


class Unreachable(Unavailable):
    """The host of the lease does not respond."""


class InternalError(ApiError):
    """The server failed (500); its log has the cause."""


BY_CODE: dict[str, type[ApiError]] = {
    "invalid_request": BadRequest,
    "invalid_json": BadRequest,
    "invalid_body": BadRequest,
    "invalid_query": BadRequest,
    "invalid_path": BadRequest,
    "invalid_header": BadRequest,
    "method_not_allowed": BadRequest,
    "body_timeout": BadRequest,
    "body_too_large": BadRequest,
    "range_not_satisfiable": BadRequest,
    "unsupported_media_type": BadRequest,
    "unprocessable": BadRequest,
    "key_reused": KeyReused,
    "unauthorized": Unauthorized,
    "host_not_allowed": Forbidden,
    "origin_not_allowed": Forbidden,
    "forbidden": Forbidden,
    "outside_route": Forbidden,
    "not_found": NotFound,
    "no_such_route": NotFound,
    "gone": Gone,
    "conflict": Conflict,
    "in_flight": Conflict,
    "busy": Busy,
    "version_conflict": VersionConflict,
    "lease_paused": LeasePaused,
    "not_driver": NotDriver,
    "not_supported": NotSupported,
    "not_running": NotRunning,
    "not_waiting": NotWaiting,
    "echo_on": EchoOn,
    "outcome_unknown": OutcomeUnknown,
    "already_exists": AlreadyExists,
    "not_a_file": FileConflict,
    "is_a_directory": FileConflict,
    "not_a_directory": FileConflict,
    "not_empty": FileConflict,
    "quota_exceeded": QuotaExceeded,
    "too_many_terminals": RateLimited,
    "too_many_requests": RateLimited,
    "too_many_failures": RateLimited,
    "overloaded": Unavailable,
    "stopping": Unavailable,
    "store_unavailable": Unavailable,
    "provider_unavailable": Unavailable,
    "unreachable": Unreachable,
    "out_of_terminals": Unavailable,
    "out_of_descriptors": Unavailable,
    "out_of_processes": Unavailable,
    "out_of_memory": Unavailable,
    "out_of_watches": Unavailable,
    "disk_full": Unavailable,
    "port_closed": Unavailable,
    "port_timeout": Unavailable,
    "internal": InternalError,
    "store_damaged": InternalError,
}

# For the codes of newer servers, and for responses of proxies in between.
_BY_STATUS: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    429: RateLimited,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def _class_of(code: str, status: int) -> type[ApiError]:
    by_status = _BY_STATUS.get(status, BadRequest if 400 <= status < 500 else InternalError)
    return BY_CODE.get(code, by_status)


def _seconds(text: str | None) -> float | None:
    try:
        return max(0.0, float(text)) if text is not None else None
    except ValueError:
        return None


def api_error(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """Returns the error for a response whose status is not a success."""
    try:
        parsed: Any = json.loads(body)
    except ValueError:
        parsed = None
    problem: dict[str, Any] = parsed if isinstance(parsed, dict) else {}
    code = str(problem.get("code", "unknown"))
    fields = problem.get("errors", [])
    return _class_of(code, status)(
        str(problem.get("detail", f"the server answered {status}")),
        code=code,
        status=status,
        request_id=headers.get("x-request-id"),
        errors=tuple(FieldError(str(one.get("pointer", "")), str(one.get("detail", ""))) for one in fields),
        retry_after=_seconds(headers.get("retry-after")),
    )


def event_error(data: Mapping[str, Any]) -> ApiError:
    """Returns the error for an `error` event, which has a code and a detail but no status."""
    code = str(data.get("code", "unknown"))
    return _class_of(code, 500)(str(data.get("detail", "the stream failed")), code=code, status=500)
