"""Requests with retries, and streams of events that survive a restart of the server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from typing import Any

import httpx

from .._discovery import ServerAddress
from .._errors import ApiError, NotFound, api_error
from .._retry import NOT_SENT, Attempts, RetryPolicy
from .._sse import EventParser, ServerEvent
from .._wire import (
    JSON_HEADERS,
    STREAM_TIMEOUT,
    Reply,
    Timeouts,
    connection_failed,
    fresh_key,
    with_query,
)
from ._pool import AsyncPool, AsyncResponse, AsyncSender, AsyncTransportSender

# Makes the body of a request, anew for each attempt.
AsyncBody = Callable[[], AsyncIterable[bytes]]


class AsyncHttp:
    """The requests of a client."""

    def __init__(
        self,
        server: ServerAddress,
        policy: RetryPolicy,
        timeout: float,
        transport: httpx.AsyncBaseTransport | None,
    ) -> None:
        self.url = server.url
        self._policy = policy
        self._timeout = timeout
        url = httpx.URL(server.url)
        headers = {"host": url.netloc.decode(), "user-agent": "stead-sdk-python"}
        if server.token:
            headers["authorization"] = f"Bearer {server.token}"
        self._sender: AsyncSender = (
            AsyncPool(url, server.tls, headers)
            if transport is None
            else AsyncTransportSender(transport, server.url, headers)
        )
        self._known_server = False

    async def aclose(self) -> None:
        await self._sender.aclose()

    def attempts(self) -> Attempts:
        return Attempts(self._policy)

    async def open(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        content: bytes | AsyncBody | None = None,
        read_timeout: float = STREAM_TIMEOUT,
        wait_forever: bool = False,
        repeatable: bool = True,
        once: bool = False,
        attempts: Attempts | None = None,
    ) -> AsyncResponse:
        """Sends a request and returns the response with its body unread. An error status raises.

        With `wait_forever` the response may take any time to begin; TCP keep-alive notices if the server's machine
        is gone. A `repeatable` request is also repeated after a broken connection. One with a body that can be read
        only `once` is repeated only if it was not sent.
        """
        target = with_query(path, params)
        timeouts = Timeouts(self._timeout, None if wait_forever else read_timeout, read_timeout)
        attempts = attempts or self.attempts()
        while True:
            try:
                body = content() if callable(content) else content
                response = await self._sender.send(method, target, headers or {}, body, timeouts)
                self._known_server = True
                if response.is_success:
                    return response
                try:
                    problem = await response.aread()
                finally:
                    await response.aclose()
                raise api_error(response.status_code, response.headers, problem)
            except (httpx.TransportError, ApiError) as error:
                # A server that accepted the connection and is gone is being restarted.
                self._known_server = self._known_server or not isinstance(error, NOT_SENT)
                if once and not isinstance(error, NOT_SENT):
                    wait = None
                else:
                    wait = attempts.delay(error, repeatable=repeatable, known_server=self._known_server)
                if wait is None:
                    raise self.explain(error) from error
            await asyncio.sleep(wait)

    def explain(self, error: Exception) -> Exception:
        if isinstance(error, httpx.TransportError):
            return connection_failed(self.url, error, not_sent=isinstance(error, NOT_SENT))
        return error

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        content: bytes | AsyncBody | None = None,
        wait_forever: bool = False,
        repeatable: bool = True,
        once: bool = False,
    ) -> Reply:
        """Sends a request and reads the whole response."""
        attempts = self.attempts()
        while True:
            try:
                response = await self.open(
                    method,
                    path,
                    params=params,
                    headers=headers,
                    content=content,
                    read_timeout=self._timeout,
                    wait_forever=wait_forever,
                    repeatable=repeatable,
                    once=once,
                    attempts=attempts,
                )
            except NotFound:
                # An attempt whose response was lost has deleted it.
                if method == "DELETE" and attempts.uncertain:
                    return Reply(204, {}, b"")
                raise
            try:
                return Reply(response.status_code, response.headers, await response.aread())
            except httpx.TransportError as error:
                # The response was cut: the server handled the request.
                wait = attempts.delay(error, repeatable=repeatable and not once, known_server=True)
                if wait is None:
                    raise self.explain(error) from error
            finally:
                await response.aclose()
            await asyncio.sleep(wait)

    async def get(self, path: str, params: Mapping[str, Any] | None = None) -> Any:
        """Returns the JSON of a resource."""
        return (await self.request("GET", path, params=params, headers=JSON_HEADERS)).json()

    async def post(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
        keyed: bool = True,
        wait_forever: bool = False,
    ) -> Any:
        """Posts JSON with an idempotency key, so that it can be repeated safely; returns the JSON response.

        A body with a write id is repeatable without a key.
        """
        headers = dict(JSON_HEADERS)
        if keyed:
            headers["idempotency-key"] = key or fresh_key()
        content = json.dumps(body or {}).encode()
        reply = await self.request("POST", path, headers=headers, content=content, wait_forever=wait_forever)
        return reply.json() if reply.body else None

    async def send_json(self, method: str, path: str, body: Mapping[str, Any]) -> Any:
        """Puts or patches JSON. A patch is not repeated after a broken connection."""
        content = json.dumps(body).encode()
        reply = await self.request(method, path, headers=JSON_HEADERS, content=content, repeatable=method == "PUT")
        return reply.json()

    async def delete(self, path: str, params: Mapping[str, Any] | None = None) -> None:
        await self.request("DELETE", path, params=params)

    async def pages(self, path: str, params: Mapping[str, Any] | None = None) -> AsyncIterator[Any]:
        """Yields the items of a list, page by page."""
        cursor = None
        while True:
            page = await self.get(path, {**(params or {}), "cursor": cursor})
            for item in page["items"]:
                yield item
            cursor = page.get("next_cursor")
            if cursor is None:
                return

    async def subscribe(
        self, path: str, params: Mapping[str, Any] | None = None, last_id: str | None = None
    ) -> AsyncIterator[ServerEvent]:
        """Yields the events of a stream. Reconnects when it breaks and continues after the last event; then a
        `reconnected` event follows."""
        attempts = self.attempts()
        while True:
            headers = {"accept": "text/event-stream"}
            if last_id is not None:
                headers["last-event-id"] = last_id
            error: Exception = httpx.RemoteProtocolError("the server ended the stream")
            response = await self.open("GET", path, params=params, headers=headers, attempts=attempts)
            parser = EventParser()
            try:
                async for chunk in response.aiter_raw():
                    for event in parser.feed(chunk):
                        attempts.succeeded()
                        last_id = event.id or last_id
                        if event.name != "notice" or event.data.get("code") != "stopping":
                            yield event
            except httpx.TransportError as broken:
                error = broken
            finally:
                await response.aclose()
            wait = attempts.delay(error, repeatable=True, known_server=True)
            if wait is None:
                raise self.explain(error) from error
            await asyncio.sleep(wait)
            yield ServerEvent("reconnected", {}, None)
