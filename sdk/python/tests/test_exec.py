"""Commands: results, streams, input, signals, cancellation, errors, concurrency."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from harness import DEADLINE, Server, running_server, until

import stead
from stead import AsyncStead, Exited, Output, RetryPolicy, Stead, Thread


def test_a_result_has_everything_about_the_command(thread: Thread) -> None:
    result = thread.exec("echo out; echo err >&2; exit 3")
    assert (result.exit_code, result.stdout, result.stderr) == (3, "out\n", "err\n")
    assert (result.status, result.timed_out, result.signal, result.ok) == ("finished", False, None, False)
    with pytest.raises(stead.CommandFailed, match="exited with 3: err") as failed:
        result.check()
    assert failed.value.result is result
    assert thread.exec("true").check().exit_code == 0


def test_output_that_is_not_utf8_is_kept_as_bytes(thread: Thread) -> None:
    result = thread.exec(r"printf 'a\377b'")
    assert result.stdout_data == b"a\xffb" and result.stdout == "a\ufffdb"
    events = list(thread.exec_stream(r"printf 'a\377'; printf '\303' >&2"))
    assert b"".join(e.data for e in events if isinstance(e, Output) and e.stream == "stdout") == b"a\xff"
    assert b"".join(e.data for e in events if isinstance(e, Output) and e.stream == "stderr") == b"\xc3"


def test_options_apply_to_one_command(thread: Thread) -> None:
    assert thread.exec("cat; echo $A $PWD", stdin="in ", env={"A": "1"}, cwd="/usr").stdout == "in 1 /usr\n"
    assert thread.exec("echo ${A:-unset}; read x || echo closed").stdout == "unset\nclosed\n"
    short = thread.exec("seq 100000", max_output_bytes=10)
    assert short.truncated and short.stdout == "1\n2\n3\n4\n5\n"


def test_a_truncated_result_can_be_read_in_full(client: Stead, thread: Thread) -> None:
    result = thread.exec("seq 1000000; echo é >&2")
    command = client.commands.attach(result.command_id)
    assert result.truncated
    assert command.output() == "".join(f"{number}\n" for number in range(1, 1_000_001)).encode()
    assert command.output("stderr").decode() == "é\n"


def test_a_timeout_ends_the_command(thread: Thread) -> None:
    result = thread.exec("sleep 600", timeout=0.2)
    assert (result.timed_out, result.status, result.exit_code) == (True, "timed_out", None)
    last = list(thread.exec_stream("sleep 600", timeout=0.2))[-1]
    assert isinstance(last, Exited) and last.result.timed_out


def test_a_command_is_cancelled_from_its_own_events(thread: Thread) -> None:
    command = thread.exec_stream("echo go; sleep 600")
    for event in command:
        if isinstance(event, Output):
            command.cancel()
    assert command.result is not None and command.result.status == "cancelled"


def test_a_command_is_cancelled_while_its_caller_waits(client: Stead, thread: Thread) -> None:
    command = thread.start("sleep 600")
    waiting = ThreadPoolExecutor(1).submit(command.wait)
    client.commands.attach(command.command_id).cancel()
    assert waiting.result(DEADLINE).status == "cancelled"
    with pytest.raises(stead.NotRunning):
        command.cancel()


def test_leaving_the_loop_leaves_the_command_running(client: Stead, thread: Thread) -> None:
    command = thread.exec_stream("echo first; read line; echo second $line", open_stdin=True)
    with command:
        for event in command:
            if isinstance(event, Output):
                break
    again = client.commands.attach(command.command_id, stdout_from=len("first\n"))
    again.write_stdin("line\n")
    assert [e.text for e in again if isinstance(e, Output)] == ["second line\n"]


def test_input_and_signals_reach_the_command(thread: Thread) -> None:
    script = "trap 'echo caught; exit 7' USR1; echo ready; cat; while :; do sleep 0.01; done"
    command = thread.start(f'bash -c "{script}"', open_stdin=True)
    command.write_stdin("one\n")
    command.write_stdin(b"two\n", eof=True)
    text = ""
    for event in command:
        if isinstance(event, Output) and event.stream == "stdout":
            text += event.text
            if text.endswith("two\n"):
                command.signal("USR1")
    assert command.result is not None
    assert (command.result.exit_code, text) == (7, "ready\none\ntwo\ncaught\n")


def test_waiting_has_a_limit_of_its_own(thread: Thread) -> None:
    command = thread.start("sleep 600")
    with pytest.raises(stead.Timeout, match="has not ended"):
        command.wait(timeout=0.1)
    command.cancel()
    assert command.wait().status == "cancelled"


def test_background_processes_do_not_delay_the_end(client: Stead, thread: Thread, tmp_path: Path) -> None:
    go = tmp_path / "go"
    command = thread.start(f"(until [ -e {go} ]; do sleep 0.01; done; echo late) & echo early")
    events = list(client.commands.attach(command.command_id))
    assert isinstance(events[-1], Exited) and events[-1].result.stdout == "early\n"
    go.touch()
    until(lambda: command.output() == b"early\nlate\n", "the late output")


def test_a_busy_terminal_refuses_if_asked_to(thread: Thread) -> None:
    command = thread.start("sleep 600")
    with pytest.raises(stead.Busy) as busy:
        thread.exec("true", if_busy="fail")
    assert (busy.value.code, busy.value.status) == ("busy", 409)
    command.cancel()


def test_errors_have_classes_codes_and_fields(client: Stead, thread: Thread, server: Server) -> None:
    with pytest.raises(stead.NotFound, match="there is no command"):
        client.commands.get("cmd_00000000000000000000000000000000")
    with pytest.raises(stead.BadRequest) as bad:
        thread.exec("true", env={"not a name": "x"})
    assert bad.value.code == "invalid_body" and bad.value.errors[0].pointer == "/env/not a name"
    with pytest.raises(stead.BadRequest):
        thread.exec("nul \0")
    thread.exec("true", key="shared key")
    with pytest.raises(stead.KeyReused):
        thread.exec("false", key="shared key")
    with pytest.raises(ValueError):
        client.thread("..").exec("true")
    with Stead(server.url, "0" * 40) as stranger, pytest.raises(stead.Unauthorized):
        stranger.thread("x").exec("true")


def test_a_server_that_is_not_there_is_reported_at_once() -> None:
    with Stead("http://127.0.0.1:9", "x") as client, pytest.raises(stead.ConnectionFailed, match="stead serve"):
        client.thread("x").exec("true")


def test_a_server_that_does_not_come_back_is_reported_after_the_deadline() -> None:
    with running_server() as server, Stead(server.url, server.token, retry=RetryPolicy(deadline=0.5)) as client:
        client.thread("x").exec("true")
        server.kill()
        with pytest.raises(stead.ConnectionFailed):
            client.thread("x").exec("true")
        with pytest.raises(ConnectionError):
            list(client.thread("x").exec_stream("true"))
        server.start()
        assert client.thread("x").exec("echo back").stdout == "back\n"


def test_one_client_serves_many_threads(client: Stead) -> None:
    barrier = threading.Barrier(8)

    def work(number: int) -> list[str]:
        barrier.wait()
        thread = client.thread(f"many-{number}")
        results = [thread.exec(f"echo {number} {turn}").stdout for turn in range(5)]
        results += [e.text for e in thread.exec_stream(f"echo {number} stream") if isinstance(e, Output)]
        return results

    with ThreadPoolExecutor(8) as pool:
        for number, results in enumerate(pool.map(work, range(8))):
            assert results == [f"{number} {turn}\n" for turn in range(5)] + [f"{number} stream\n"]


def test_one_async_client_serves_many_tasks(server: Server) -> None:
    async def work(client: AsyncStead, number: int) -> str:
        thread = client.thread(f"tasks-{number}")
        text = (await thread.exec(f"echo {number}")).stdout
        async for event in thread.exec_stream(f"echo {number} stream"):
            if isinstance(event, Output):
                text += event.text
        return text

    async def main() -> list[str]:
        async with AsyncStead(server.url, server.token) as client:
            return await asyncio.gather(*(work(client, number) for number in range(8)))

    assert asyncio.run(main()) == [f"{number}\n{number} stream\n" for number in range(8)]


def test_a_cancelled_task_leaves_the_command_running_and_the_client_usable(server: Server) -> None:
    async def main() -> None:
        async with AsyncStead(server.url, server.token) as client:
            command = client.thread("cancelled-task").exec_stream("echo go; read x; echo $x", open_stdin=True)
            started = asyncio.Event()

            async def follow() -> None:
                async for event in command:
                    if isinstance(event, Output):
                        started.set()

            task = asyncio.create_task(follow())
            await asyncio.wait_for(started.wait(), DEADLINE)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            again = client.commands.attach(command.command_id)
            await again.write_stdin("end\n")
            assert (await again.wait()).stdout == "go\nend\n"

    asyncio.run(main())
