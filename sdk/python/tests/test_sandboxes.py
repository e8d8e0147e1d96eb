"""Sandboxes, as the API's contract describes them.

The requests are checked against the contract. A real sandbox is tested where the server has the routes.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

import stead
from stead import Stead

SANDBOX = {"sandbox_id": "sbx_1", "lease_id": "lease_1", "thread_id": "t1", "state": "running", "name": "n"}


class Contract:
    """Answers as the contract says, and records the requests."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, Any]] = []
        self.keys: list[str | None] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else None
        path = request.url.raw_path.decode()
        self.requests.append((request.method, path, body))
        self.keys.append(request.headers.get("idempotency-key"))
        if request.method == "DELETE":
            return httpx.Response(204)
        if path.startswith("/api/sandboxes?"):
            return httpx.Response(200, json={"items": [SANDBOX], "next_cursor": None})
        if path.endswith("/pause"):
            return httpx.Response(200, json={**SANDBOX, "state": "paused"})
        return httpx.Response(201 if request.method == "POST" else 200, json=SANDBOX)


def test_requests_are_those_of_the_contract() -> None:
    contract = Contract()
    with Stead("http://contract", "t", transport=httpx.MockTransport(contract)) as client:
        with client.sandboxes.create("n", cpus=2, env={"A": "1"}, timeout_s=60, on_timeout="suspend") as sandbox:
            assert (sandbox.sandbox_id, sandbox.thread_id, sandbox.state) == ("sbx_1", "t1", "running")
            assert sandbox.pause().state == sandbox.state == "paused"
            sandbox.resume()
            sandbox.suspend(memory=True)
            assert sandbox.fork().sandbox_id == "sbx_1"
            sandbox.snapshot("s")
            sandbox.extend(120)
            sandbox.update(labels={"k": "v"})
            assert sandbox.refresh().data["name"] == "n"
        assert [one.sandbox_id for one in client.sandboxes.list(label="k=v", state="running")] == ["sbx_1"]
        client.sandboxes.get("sbx_1")
    created = {"name": "n", "cpus": 2, "env": {"A": "1"}, "timeout_s": 60, "on_timeout": "suspend"}
    assert contract.requests == [
        ("POST", "/api/sandboxes", created),
        ("POST", "/api/sandboxes/sbx_1/pause", {}),
        ("POST", "/api/sandboxes/sbx_1/resume", {}),
        ("POST", "/api/sandboxes/sbx_1/suspend", {"memory": True}),
        ("POST", "/api/sandboxes/sbx_1/fork", {}),
        ("POST", "/api/sandboxes/sbx_1/snapshot", {"name": "s"}),
        ("POST", "/api/sandboxes/sbx_1/extend", {"timeout_s": 120}),
        ("PATCH", "/api/sandboxes/sbx_1", {"labels": {"k": "v"}}),
        ("GET", "/api/sandboxes/sbx_1", None),
        ("DELETE", "/api/sandboxes/sbx_1", None),
        ("GET", "/api/sandboxes?label=k%3Dv&state=running", None),
        ("GET", "/api/sandboxes/sbx_1", None),
    ]
    posted = [key for (method, _, _), key in zip(contract.requests, contract.keys, strict=True) if method == "POST"]
    assert None not in posted and len(set(posted)) == len(posted)


def test_a_sandbox_is_created_used_and_deleted(client: Stead) -> None:
    if "/api/sandboxes" not in client._http.get("/openapi.json")["paths"]:
        pytest.skip("the server has no route for sandboxes")
    with client.sandboxes.create("sdk-test", labels={"kind": "sdk"}) as sandbox:
        assert sandbox.exec("echo inside").stdout == "inside\n"
        assert client.sandboxes.create("sdk-test", labels={"kind": "sdk"}).sandbox_id == sandbox.sandbox_id
        assert sandbox.sandbox_id in [one.sandbox_id for one in client.sandboxes.list(label="kind=sdk")]
    with pytest.raises(stead.NotFound):
        client.sandboxes.get(sandbox.sandbox_id)
