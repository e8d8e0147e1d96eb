"""The parts without I/O."""

from __future__ import annotations

import random
import ssl
from datetime import datetime, timezone
from pathlib import Path

import httpx
import pytest

import stead
from stead import Gap, Output, RetryPolicy
from stead._discovery import DEFAULT_URL, find_server
from stead._errors import ApiError, api_error
from stead._models import parse_time
from stead._output import Position
from stead._retry import Attempts
from stead._sse import EventParser


def test_events_are_parsed_however_they_are_cut() -> None:
    text = (
        b": stead\nretry: 500\n\n"
        b'event: stdout\ndata: {"offset":0,"data":"\xc3\xa9\\n"}\nid: 7\n\n'
        b": heartbeat\n\n"
        b'event: exit\r\ndata: {"a":\r\ndata: 1}\r\n\r\n'
    )
    for size in range(1, len(text) + 1):
        parser = EventParser()
        events = [e for at in range(0, len(text), size) for e in parser.feed(text[at : at + size])]
        assert [(e.name, e.data, e.id) for e in events] == [
            ("stdout", {"offset": 0, "data": "é\n"}, "7"),
            ("exit", {"a": 1}, None),
        ]


def test_each_byte_is_taken_once_and_no_character_is_cut() -> None:
    rng = random.Random(1)
    whole = ("aé€😀" * 500).encode() + b"\xff\xfe\xe2"
    for _ in range(200):
        position = Position()
        parts: list[Output | Gap] = []
        while (start := position.next("stdout")) < len(whole):
            # A part may start before the position: a repeated request repeats bytes.
            back = rng.randrange(0, min(start, 20) + 1)
            end = start + rng.randrange(0, 200)
            parts += position.take("stdout", start - back, whole[start - back : end])
        parts += position.flush("stdout")
        outputs = [part for part in parts if isinstance(part, Output)]
        assert outputs == parts
        assert b"".join(part.data for part in outputs) == whole
        assert all(whole[one.offset : one.offset + len(one.data)] == one.data for one in outputs)
        assert "\ufffd" not in "".join(one.text for one in outputs[:-2])


def test_missing_bytes_are_a_gap() -> None:
    position = Position()
    assert list(position.take("stderr", 0, "aé".encode()[:2])) == [Output("stderr", 0, b"a")]
    assert list(position.take("stderr", 10, b"b")) == [
        Output("stderr", 1, b"\xc3"),
        Gap("stderr", 2, 10),
        Output("stderr", 10, b"b"),
    ]
    assert list(position.take("stderr", 20, b"")) == [Gap("stderr", 11, 20)]
    assert position.next("stderr") == 20


def unavailable(status: int, retry_after: str | None) -> ApiError:
    headers = {} if retry_after is None else {"retry-after": retry_after}
    return api_error(status, headers, b"{}")


@pytest.mark.parametrize(
    ("error", "repeatable", "known", "retried"),
    [
        (httpx.ConnectError("refused"), False, True, True),
        (httpx.ConnectError("refused"), True, False, False),
        (httpx.ReadError("reset"), True, True, True),
        (httpx.ReadError("reset"), False, True, False),
        (httpx.RemoteProtocolError("cut"), True, False, True),
        (httpx.ReadTimeout("silent"), False, True, False),
        (httpx.UnsupportedProtocol("ftp"), True, True, False),
        (unavailable(503, "0"), False, True, True),
        (unavailable(503, None), True, True, False),
        (unavailable(429, "0"), False, True, True),
        (unavailable(409, "0"), True, True, False),
        (unavailable(500, "0"), True, True, False),
        (unavailable(503, "100"), True, True, False),
    ],
)
def test_only_safe_requests_are_repeated(error: Exception, repeatable: bool, known: bool, retried: bool) -> None:
    attempts = Attempts(RetryPolicy())
    assert (attempts.delay(error, repeatable=repeatable, known_server=known) is not None) == retried


def test_retries_end_at_the_deadline() -> None:
    now = 0.0
    attempts = Attempts(RetryPolicy(deadline=10.0), lambda: now)
    delays = []
    while (wait := attempts.delay(httpx.ReadError("x"), repeatable=True, known_server=True)) is not None:
        delays.append(wait)
        now += wait
    assert 8.0 <= now <= 10.0 and max(delays) <= 2.0 and delays[0] <= 0.05
    attempts.succeeded()
    assert attempts.delay(httpx.ReadError("x"), repeatable=True, known_server=True) is not None
    # A long attempt had reached the server; a silent one had not.
    for error, again in ((httpx.ReadError("x"), True), (httpx.ReadTimeout("x"), False)):
        now += 100.0
        assert (attempts.delay(error, repeatable=True, known_server=True) is not None) == again
    assert Attempts(RetryPolicy(deadline=0)).delay(httpx.ReadError("x"), repeatable=True, known_server=True) is None


def test_an_untrusted_certificate_is_not_retried() -> None:
    error = httpx.ConnectError("tls")
    error.__cause__ = ssl.SSLCertVerificationError()
    assert Attempts(RetryPolicy()).delay(error, repeatable=True, known_server=True) is None


def test_the_server_is_found_by_arguments_then_environment_then_home(tmp_path: Path) -> None:
    def check(home: Path, environment: dict[str, str], expected: str, secret: str | None, *given: str) -> None:
        found = find_server(*given, environment={"STEAD_HOME": str(home), **environment})
        assert (found.url, found.token) == (expected, secret)

    home, empty = tmp_path / "home", tmp_path / "empty"
    home.mkdir()
    (home / "address").write_text("http://127.0.0.1:9\n")
    (home / "token").write_text("secret\n")
    check(empty, {}, DEFAULT_URL, None)
    check(home, {}, "http://127.0.0.1:9", "secret")
    check(home, {"STEAD_URL": "http://h:1/", "STEAD_TOKEN": "t"}, "http://h:1", "t")
    check(home, {"STEAD_URL": "http://h:1"}, "http://other:2", "mine", "http://other:2", "mine")
    # The token of the home directory does not leave this machine.
    check(home, {"STEAD_URL": "http://localhost:1"}, "http://localhost:1", "secret")
    check(home, {"STEAD_URL": "http://h:1"}, "http://h:1", None)
    (home / "address").write_text("http://h:1")
    check(home, {"STEAD_URL": "http://h:1"}, "http://h:1", "secret")
    for wrong in ("h:1", "ftp://h", "http://"):
        with pytest.raises(ValueError):
            find_server(wrong)


def test_times_have_any_number_of_digits() -> None:
    for text, micros in (("", 0), (".5", 500_000), (".123456789", 123_456)):
        expected = datetime(2026, 2, 3, 4, 5, 6, micros, timezone.utc)
        assert parse_time(f"2026-02-03T04:05:06{text}Z") == expected


def test_unknown_codes_and_foreign_bodies_have_a_class_by_status() -> None:
    def check(status: int, body: bytes, expected: type[ApiError]) -> None:
        error = api_error(status, {"x-request-id": "r1"}, body)
        assert type(error) is expected and error.status == status and error.request_id == "r1"

    check(409, b'{"code": "new_code"}', stead.Conflict)
    check(418, b'{"code": "teapot"}', stead.BadRequest)
    check(502, b"<html>", stead.Unavailable)
    check(500, b"[]", stead.InternalError)
    check(404, b"", stead.NotFound)
