"""Decides whether and when a failed request is repeated. Does no I/O.

A request is repeated only if that cannot do anything twice: if it never left this machine, if its method or its
idempotency key makes it repeatable, or if the server answered that it did nothing and when to come back.
"""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from ._errors import ApiError

# The request was not sent: no connection was made, or none was free.
NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
# The connection broke, or the server was silent; the request may have been handled.
_BROKEN = (httpx.NetworkError, httpx.RemoteProtocolError)
_SILENT = (httpx.ReadTimeout, httpx.WriteTimeout)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long and how often failed requests are repeated.

    Requests are repeated for `deadline` seconds after the first failure, which covers a restart of the server. A
    deadline of 0 turns retries off.
    """

    deadline: float = 60.0
    first_delay: float = 0.05
    max_delay: float = 2.0


def is_untrusted(error: BaseException | None) -> bool:
    """Returns whether a connection failed because of the server's certificate."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


class Attempts:
    """The attempts at one request, or at one stream since it last received something."""

    def __init__(self, policy: RetryPolicy, clock: Callable[[], float] = time.monotonic) -> None:
        self._policy = policy
        self._clock = clock
        self._failures = 0
        self._first_failure: float | None = None
        self._attempt_start = clock()
        #: Whether an attempt may have been handled by the server although it failed.
        self.uncertain = False

    def succeeded(self) -> None:
        """Ends the series of failures."""
        self._failures = 0
        self._first_failure = None

    def delay(self, error: Exception, *, repeatable: bool, known_server: bool) -> float | None:
        """Returns how many seconds to wait before the next attempt; `None` if there must be none."""
        now, policy = self._clock(), self._policy
        if isinstance(error, ApiError):
            if error.status not in (429, 503) or error.retry_after is None:
                return None
            minimum = error.retry_after
        elif isinstance(error, NOT_SENT):
            # A server that never answered is not restarting, and a wrong certificate stays wrong.
            if is_untrusted(error) or not known_server:
                return None
            minimum = 0.0
        elif isinstance(error, (*_BROKEN, *_SILENT)):
            self.uncertain = True
            if not repeatable:
                return None
            minimum = 0.0
            # The server was there until now, for example while a command ran: this is another outage.
            if isinstance(error, _BROKEN) and now - self._attempt_start > policy.max_delay:
                self.succeeded()
        else:
            return None
        if self._first_failure is None:
            self._first_failure = now
        backoff = min(policy.max_delay, policy.first_delay * 2.0 ** min(self._failures, 16))
        self._failures += 1
        # Jitter, so that many clients of a restarted server do not return at the same instant.
        wait = max(minimum, backoff * random.uniform(0.5, 1.0))
        self._attempt_start = now + wait
        return wait if self._attempt_start - self._first_failure <= policy.deadline else None
