"""Broken connections and killed servers, which programs must not notice."""

from __future__ import annotations

import asyncio
import hashlib
import shlex
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import CuttingProxy, Server, until

from stead import AsyncStead, Exited, Gap, Output, Started, Stead

BLOCK_BYTES = 1 << 20
BLOCKS = 100
KILLS = 5

# Writes as fast as it can, whether it is read or not.
PRODUCER = """
import hashlib, sys
blocks, size = int(sys.argv[1]), int(sys.argv[2])
for index in range(blocks):
    block = hashlib.sha256(b"%d" % index).hexdigest().encode()
    sys.stdout.buffer.write(block * (size // len(block)))
    sys.stdout.flush()
print("done", file=sys.stderr)
"""


def expected_digest() -> str:
    whole = hashlib.sha256()
    for index in range(BLOCKS):
        block = hashlib.sha256(b"%d" % index).hexdigest().encode()
        whole.update(block * (BLOCK_BYTES // len(block)))
    return whole.hexdigest()


class Sink:
    """Counts and hashes what a program received."""

    def __init__(self) -> None:
        self.received = 0
        self.events: list[object] = []
        self._digest = hashlib.sha256()

    def take(self, event: object) -> None:
        if isinstance(event, Output) and event.stream == "stdout":
            self._digest.update(event.data)
            self.received += len(event.data)
        else:
            self.events.append(event)

    def digest(self) -> str:
        return self._digest.hexdigest()


def in_background(run: Callable[[], object]) -> Callable[[], None]:
    """Runs a function in a thread; returns a function that waits for it and raises its error."""
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            run()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()

    def join() -> None:
        thread.join()
        if errors:
            raise errors[0]

    return join


def receive(server: Server, command: str, sink: Sink) -> None:
    with Stead(server.url, server.token) as client:
        for event in client.thread("sync").exec_stream(command):
            sink.take(event)


def receive_async(server: Server, command: str, sink: Sink) -> None:
    async def program() -> None:
        async with AsyncStead(server.url, server.token) as client:
            async for event in client.thread("async").exec_stream(command):
                sink.take(event)

    asyncio.run(program())


@pytest.mark.parametrize("program", [receive, receive_async])
def test_100_mb_arrive_exactly_once_although_the_server_is_killed_five_times(
    own_server: Server, tmp_path: Path, program: Callable[[Server, str, Sink], None]
) -> None:
    sink = Sink()
    script = tmp_path / "producer.py"
    script.write_text(PRODUCER)
    command = shlex.join(["python3", str(script), str(BLOCKS), str(BLOCK_BYTES)])
    join = in_background(lambda: program(own_server, command, sink))
    for kill in range(KILLS):
        wanted = BLOCKS * BLOCK_BYTES * (kill + 0.5) / KILLS
        until(lambda wanted=wanted: sink.received >= wanted, "progress of the program")  # type: ignore[misc]
        own_server.restart()
    join()
    started, output, exited = sink.events
    assert isinstance(started, Started)
    assert isinstance(output, Output) and output.data == b"done\n"
    assert isinstance(exited, Exited)
    assert (exited.result.exit_code, exited.result.stdout_bytes) == (0, BLOCKS * BLOCK_BYTES)
    assert (sink.received, sink.digest()) == (BLOCKS * BLOCK_BYTES, expected_digest())


def test_a_command_is_run_once_although_the_server_is_killed_while_it_runs(own_server: Server, tmp_path: Path) -> None:
    mark, go = tmp_path / "mark", tmp_path / "go"
    command = f"echo ran >> {mark}; until [ -e {go} ]; do sleep 0.01; done; echo end"
    results = []
    with Stead(own_server.url, own_server.token) as client:
        join = in_background(lambda: results.append(client.thread("once").exec(command)))
        until(mark.exists, "the command to start")
        own_server.restart()
        go.touch()
        join()
    assert [(result.exit_code, result.stdout) for result in results] == [(0, "end\n")]
    assert mark.read_text() == "ran\n"


def test_a_key_finds_the_same_command_again(own_server: Server) -> None:
    with Stead(own_server.url, own_server.token) as client:
        first = client.thread("keyed").exec("echo $RANDOM$RANDOM", key="a key of mine")
    own_server.restart()
    with Stead(own_server.url, own_server.token) as client:
        assert client.thread("keyed").exec("echo $RANDOM$RANDOM", key="a key of mine") == first


@pytest.mark.parametrize("seed", range(4))
def test_output_is_complete_although_connections_are_cut_at_random_bytes(server: Server, seed: int) -> None:
    lines = 60_000
    expected = "".join(f"{number}\n" for number in range(1, lines + 1)).encode()
    # The first connections break before the `started` event.
    low = 50 if seed < 2 else 2_000
    with (
        CuttingProxy(server.address, seed, low, 30_000) as proxy,
        proxy.client(server) as client,
    ):
        received = b""
        for event in client.thread(f"cut-{seed}").exec_stream(f"seq {lines}; echo é >&2"):
            assert not isinstance(event, Gap)
            if isinstance(event, Output) and event.stream == "stdout":
                assert event.offset == len(received)
                received += event.data
        assert received == expected
        assert proxy.cuts > 3


def test_files_are_complete_although_connections_are_cut(server: Server) -> None:
    content = bytes(range(256)) * 4096
    with (
        Stead(server.url, server.token) as direct,
        CuttingProxy(server.address, 5, 2_000, 100_000) as proxy,
        proxy.client(server) as client,
    ):
        direct.thread("cut-files").exec("true")
        direct.thread("cut-files").files.write("/workspace/cut.bin", content)
        assert b"".join(client.thread("cut-files").files.stream("/workspace/cut.bin")) == content
        assert proxy.cuts > 3


def test_terminal_output_continues_at_its_offset_after_a_kill(own_server: Server) -> None:
    with Stead(own_server.url, own_server.token) as client:
        thread = client.thread("attached")
        thread.exec("true")
        terminal = thread.terminal()
        offset: int | None = None
        text, killed = b"", False
        terminal.type("for i in $(seq 500); do echo line-$i; sleep 0.002; done\r")
        for event in terminal.attach(offset=0):
            if event.kind == "data":
                assert offset is None or event.offset == offset, "a gap or a repetition"
                offset = (event.offset or 0) + len(event.data)
                text += event.data
            if b"line-100\r\n" in text and not killed:
                killed = True
                own_server.restart()
            if b"line-500\r\n" in text:
                break
        assert killed and [text.count(b"line-%d\r\n" % number) for number in (1, 99, 100, 101, 500)] == [1] * 5


def test_events_continue_after_a_kill(own_server: Server) -> None:
    with Stead(own_server.url, own_server.token) as client:
        seen = []
        restarted = False
        join: Callable[[], None] | None = None
        for event in client.events(after=0):
            seen.append(event.type)
            if not restarted:
                restarted = True
                own_server.restart()
                join = in_background(lambda: client.thread("after-restart").exec("true"))
            elif event.type == "thread_created" and event.data["thread_id"] == "after-restart":
                break
        assert join is not None
        join()
