"""Terminals: screen, keyboard, versions."""

from __future__ import annotations

import http.server
import re
import threading
import urllib.parse
import urllib.request
from datetime import datetime, timezone

import pytest
from harness import Server

import stead
from stead import PROMPT, Stead, Terminal, Thread


@pytest.fixture
def terminal(thread: Thread) -> Terminal:
    terminal = thread.terminal()
    # Typed, because the prompt is drawn again some time after an exec that changed it.
    terminal.type("PS1='$ '\r")
    terminal.wait_for(PROMPT)
    return terminal


def test_what_is_typed_appears_on_the_screen(terminal: Terminal) -> None:
    terminal.type("echo $((20 + 22))\r")
    assert "\n42\n" in terminal.wait_for(PROMPT)
    assert terminal.wait_for(re.compile("^4[0-9]$", re.MULTILINE))
    ansi = terminal.screen(format="ansi")
    assert "42" in ansi.data and (ansi.cols, ansi.rows) == (80, 24)
    assert "<" in terminal.screen(format="html")
    typed = next(iter(terminal.history()))
    assert (typed.source, typed.command, typed.exit_code) == ("person", "echo $((20 + 22))", 0)
    assert [one.command for one in terminal.history("PS1")] == ["PS1='$ '"]


def test_the_prompt_is_awaited_until_the_typed_line_has_ended(terminal: Terminal) -> None:
    for number in range(5):
        terminal.type(f"sleep 0.1; done{number}=1\r")
        terminal.wait_for(PROMPT)
        assert next(iter(terminal.history())).command == f"sleep 0.1; done{number}=1"


def test_listening_ports_are_listed(server: Server, thread: Thread) -> None:
    assert int(server.address.rsplit(":", 1)[1]) in thread.ports()


class Greeting(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"hello from " + self.path.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_a_link_opens_one_port(server: Server, client: Stead, thread: Thread) -> None:
    thread.exec("true")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Greeting) as program:
        threading.Thread(target=program.serve_forever, daemon=True).start()
        link = thread.ports.link(program.server_port, expires_in_ms=60_000)
        host = urllib.parse.urlsplit(link.url).netloc
        assert host.startswith("p-")
        assert link.expires_at > datetime.now(timezone.utc)
        # Not every resolver knows the subdomains of localhost.
        request = urllib.request.Request(f"http://{server.address}/page", headers={"Host": host})
        with urllib.request.urlopen(request) as response:
            assert response.read() == b"hello from /page"
        program.shutdown()
    with pytest.raises(stead.NotFound):
        client.thread("missing").ports.link(80)


def test_waiting_for_text_has_a_limit(terminal: Terminal) -> None:
    with pytest.raises(stead.Timeout, match="'never' is not on the screen"):
        terminal.wait_for("never", timeout=0.1)
    terminal.type("sleep 600\r")
    with pytest.raises(TimeoutError):
        terminal.wait_for(PROMPT, timeout=0.3)
    terminal.type("\x03")
    terminal.wait_for(PROMPT)


def test_a_program_ends_with_its_terminal(thread: Thread) -> None:
    terminal = thread.terminals.create(["sh", "-c", "read x; exit $x"], cols=100, rows=30, env={"A": "b"})
    info = terminal.info()
    assert (info.cols, info.rows, info.is_default, info.cmd[0]) == (100, 30, False, "sh")
    terminal.resize(90, 20)
    events = []
    for event in terminal.attach():
        events.append(event)
        if event.kind == "snapshot":
            terminal.type("5\r")
    assert events[-1].kind == "exit" and events[-1].fields == {"code": 5, "signal": None}
    assert [event.kind for event in terminal.attach(offset=0)][-1] == "exit"
    assert terminal.info().exit_code == 5 and terminal.info().status == "exited"
    assert {one.terminal_id for one in thread.terminals.list()} >= {terminal.terminal_id}
    terminal.delete()
    with pytest.raises(stead.NotFound):
        thread.terminals.get(terminal.terminal_id)


def test_signals_reach_the_program_in_the_foreground(terminal: Terminal) -> None:
    terminal.type("echo ready; cat\r")
    # What is typed before the program runs is echoed at another time.
    terminal.wait_for("\nready\n")
    terminal.type("typed\r")
    terminal.wait_for("typed\ntyped\n")
    terminal.signal("INT")
    terminal.wait_for(PROMPT)


def test_versions_are_listed_compared_and_restored(terminal: Terminal) -> None:
    before = terminal.exec("export COLOR=red; cd /usr").version
    after = terminal.exec("export COLOR=blue SIZE=9; cd /tmp; f() { echo function; }").version
    assert after == before + 1
    assert [one.version for one in terminal.versions()][:2] == [after, before]
    difference = terminal.version(after, since=before)
    assert difference.env["COLOR"] == "blue" and difference.cwd == "/tmp"
    assert terminal.version(before, since=after).unset == ["SIZE"]
    fork = terminal.fork(before)
    state = terminal.rollback(before)
    assert (state.version, state.cwd) == (after + 1, "/usr")
    for shell in (terminal, fork):
        assert shell.exec("echo $COLOR ${SIZE:-unset} $PWD; type -t f").stdout == "red unset /usr\n"
    with pytest.raises(stead.BadRequest):
        terminal.rollback(10_000)


def test_variables_are_set_in_the_live_shell(terminal: Terminal) -> None:
    terminal.exec("export OLD=1")
    terminal.set_env({"NEW": "a b"}, unset=["OLD"])
    assert terminal.exec("echo $NEW ${OLD:-unset}").stdout == "a b unset\n"


def test_threads_are_created_listed_paused_and_deleted(client: Stead) -> None:
    thread = client.threads.create("listed", labels={"kind": "test"}, env={"A": "1"})
    assert thread.exec("echo $A").stdout == "1\n"
    info = thread.info()
    assert (info.labels, info.sandbox.type, info.sandbox.status) == ({"kind": "test"}, "local", "running")
    assert [one.labels for one in client.threads.list() if one.thread_id == "listed"] == [{"kind": "test"}]
    assert thread.pause().instance is not None
    with pytest.raises(stead.LeasePaused):
        thread.exec("true", resume=False)
    lease = thread.resume()
    assert lease.instance is not None and lease.instance.state == "running"
    assert thread.lease().lease_id == lease.lease_id
    assert [one.terminal_id for one in client.terminals.list(status="live")]
    thread.delete()
    with pytest.raises(stead.NotFound):
        client.threads.get("listed")
