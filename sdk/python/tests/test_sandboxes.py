"""Sandboxes: creation, lifetime, pause, forks and snapshots."""

from __future__ import annotations

import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import DEADLINE, running_server, until

import stead
from stead import Output, Stead


@pytest.fixture(scope="module")
def isolating() -> Iterator[Stead]:
    """A client of a server whose sandboxes are isolated."""
    with running_server("namespace") as server, Stead(server.url, server.token) as client:
        if not any(one.name == "namespace" and one.available for one in client.providers()):
            pytest.skip("this machine cannot run namespace sandboxes")
        yield client


def test_a_sandbox_is_created_found_changed_and_deleted(client: Stead) -> None:
    with client.sandboxes.create("sdk-test", env={"A": "1"}, timeout_s=600, labels={"kind": "sdk"}) as sandbox:
        assert sandbox.exec("echo inside $A").stdout == "inside 1\n"
        assert (sandbox.info.name, sandbox.info.state, sandbox.info.on_timeout) == ("sdk-test", "running", "suspend")
        again = client.sandboxes.create("sdk-test", labels={"kind": "sdk"})
        assert again.sandbox_id == sandbox.sandbox_id
        assert [one.sandbox_id for one in client.sandboxes.list(label="kind=sdk")] == [sandbox.sandbox_id]
        assert list(client.sandboxes.list(label="kind=sdk", state="paused")) == []
        before = sandbox.info.expires_at
        after = sandbox.extend(6000).expires_at
        assert before is not None and after is not None and after > before
        changed = sandbox.update(labels={"kind": "changed"}, on_timeout="destroy")
        assert (changed.labels, changed.on_timeout) == ({"kind": "changed"}, "destroy")
        assert sandbox.pause().state == "paused"
        assert client.sandboxes.get(sandbox.sandbox_id).info.state == "paused"
        assert sandbox.exec("echo awake").stdout == "awake\n"
        assert sandbox.refresh().state == "running"
    with pytest.raises(stead.NotFound):
        client.sandboxes.get(sandbox.sandbox_id)
    with pytest.raises(stead.BadRequest) as bad:
        client.sandboxes.create(provider="nowhere")
    assert bad.value.errors[0].pointer == "/provider"


def test_a_sandbox_is_isolated_and_keeps_its_files_when_suspended(isolating: Stead) -> None:
    with isolating.sandboxes.create(memory="256m") as sandbox:
        assert sandbox.exec("echo $$ > /tmp/inside; pwd").check().stdout.endswith("/workspace\n")
        assert not Path("/tmp/inside").exists()
        assert sandbox.files.read_text("/tmp/inside").strip().isdigit()
        sandbox.files.write("/workspace/file", "text")
        assert {e.text for e in sandbox.exec_stream("cat file; echo b >&2") if isinstance(e, Output)} == {"text", "b\n"}
        sandbox.exec("echo kept > /root/kept; cd /usr; export STEP=1")
        assert sandbox.suspend().state == "suspended"
        with pytest.raises(stead.NotSupported):
            sandbox.suspend(memory=True)
        assert sandbox.exec("echo $STEP $PWD; cat /root/kept").stdout == "1 /usr\nkept\n"


def test_a_link_opens_a_port_inside_a_sandbox(isolating: Stead) -> None:
    with isolating.sandboxes.create() as sandbox:
        sandbox.files.write("/workspace/page", "hello from inside")
        sandbox.start("python3 -m http.server --bind 127.0.0.1 8080")
        until(lambda: 8080 in sandbox.ports(), "the program to listen")
        link = sandbox.ports.link(8080)
        # Not every resolver knows the subdomains of localhost.
        host = urllib.parse.urlsplit(link.url).netloc
        request = urllib.request.Request(f"{isolating.url}/page", headers={"Host": host})
        with urllib.request.urlopen(request, timeout=DEADLINE) as response:
            assert response.read() == b"hello from inside"


def test_forks_and_snapshots_have_the_files_of_their_original(isolating: Stead) -> None:
    with isolating.sandboxes.create(labels={"kind": "original"}) as original:
        original.exec("echo 1 > /root/file; cd /usr; export STEP=1").check()
        with original.fork(name="a-fork") as fork:
            assert (fork.info.name, fork.info.labels) == ("a-fork", {"kind": "original"})
            assert fork.exec("echo $STEP $PWD; cat /root/file; echo 2 > /root/file").stdout == "1 /usr\n1\n"
            assert original.exec("cat /root/file").stdout == "1\n"
            with pytest.raises(stead.Conflict):
                original.fork(name="a-fork")
        saved = original.snapshot("sdk-saved")
        assert (saved.name, saved.provider) == ("sdk-saved", "namespace") and saved.bytes > 0
        with isolating.sandboxes.create(snapshot="sdk-saved") as copy:
            assert copy.exec("cat /root/file").stdout == "1\n"
