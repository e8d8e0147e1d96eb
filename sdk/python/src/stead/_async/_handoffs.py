"""Hand-offs: an agent asks a person for input, a secret or an approval."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from time import monotonic
from typing import Literal

from .._models import Handoff
from .._wire import given, milliseconds, segment
from ._http import AsyncHttp

# How long one request waits, in seconds. The server answers after this time at the latest.
_WAIT = 20.0


class AsyncHandoffs:
    """All hand-offs of the server.

    >>> terminal = await client.thread("docs").terminal()
    >>> question = await client.handoffs.ask(terminal.terminal_id, "approval", "Deploy version 1.4?")
    >>> question.status
    'open'
    >>> _ = await client.handoffs.answer(question.handoff_id, approve=True)
    >>> (await client.handoffs.wait(question.handoff_id)).approved
    True
    """

    def __init__(self, http: AsyncHttp) -> None:
        self._http = http

    async def ask(
        self,
        terminal_id: str,
        kind: Literal["input", "secret", "approval"],
        reason: str,
        *,
        options: Sequence[str] = (),
        timeout: float | None = None,
    ) -> Handoff:
        """Asks a person and returns without waiting; `wait` returns the answer.

        A `secret` is typed into the program that reads the terminal, and no client can read it. The hand-off expires
        after `timeout` seconds, a day by default.
        """
        body = given(kind=kind, reason=reason, options=list(options), timeout_ms=milliseconds(timeout))
        path = f"/api/terminals/{segment(terminal_id)}/handoffs"
        return Handoff.from_json(await self._http.post(path, body))

    async def get(self, handoff_id: str) -> Handoff:
        """Returns a hand-off as it is."""
        return Handoff.from_json(await self._http.get(f"/api/handoffs/{segment(handoff_id)}"))

    async def wait(self, handoff_id: str, *, timeout: float | None = None) -> Handoff:
        """Waits until a person answered or declined, or until the hand-off expired.

        After `timeout` seconds, the hand-off is returned as it is.
        """
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            left = _WAIT if deadline is None else min(_WAIT, deadline - monotonic())
            params = {"wait_ms": milliseconds(left) if left > 0 else None}
            found = await self._http.get(f"/api/handoffs/{segment(handoff_id)}", params)
            handoff = Handoff.from_json(found)
            if handoff.status != "open" or (deadline is not None and monotonic() >= deadline):
                return handoff

    async def list(
        self,
        *,
        status: Literal["open", "answered", "declined", "expired"] | None = None,
        thread_id: str | None = None,
        terminal_id: str | None = None,
    ) -> AsyncIterator[Handoff]:
        """Yields hand-offs, newest first."""
        params = {"status": status, "thread_id": thread_id, "terminal_id": terminal_id}
        async for item in self._http.pages("/api/handoffs", params):
            yield Handoff.from_json(item)

    async def answer(
        self,
        handoff_id: str,
        *,
        approve: bool | None = None,
        option: str | None = None,
        text: str | None = None,
        secret: str | None = None,
    ) -> Handoff:
        """Answers as a person.

        A secret is typed into the terminal and kept nowhere. Raises `NotWaiting` if no program waits for it, and
        `EchoOn` if the terminal would show it.
        """
        body = given(approve=approve, option=option, text=text, secret=secret)
        return Handoff.from_json(await self._http.post(f"/api/handoffs/{segment(handoff_id)}/answer", body))

    async def decline(self, handoff_id: str, *, text: str | None = None) -> Handoff:
        """Declines as a person."""
        body = given(text=text)
        return Handoff.from_json(await self._http.post(f"/api/handoffs/{segment(handoff_id)}/decline", body))
