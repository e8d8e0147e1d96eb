"""The adapter for the OpenAI Agents SDK: commands, files, interactive programs, and life after `kill -9`."""

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from agents.sandbox.entries import File
from agents.sandbox.errors import (
    ExecTimeoutError,
    ExposedPortUnavailableError,
    InvalidManifestPathError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.manifest import Manifest

from example import printed
from server import ask, until
from stead import Stead
from stead.adapters.openai_agents import SteadSandboxClient, SteadSandboxClientOptions

# Starts a process that counts, writes the state of its session to its standard output, and waits to be killed.
VICTIM = """
import asyncio, json
from stead.adapters.openai_agents import SteadSandboxClient, SteadSandboxClientOptions

async def main():
    client = SteadSandboxClient()
    session = await client.create(options=SteadSandboxClientOptions(labels={"kind": "victim"}))
    await session.start()
    await session.exec("echo precious > result.txt; (while :; do date +%s%N > beat; sleep 0.1; done) >/dev/null 2>&1 &")
    print(json.dumps(client.serialize_session_state(session.state)), flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


@pytest.fixture
async def client():
    client = SteadSandboxClient()
    yield client
    await client.close()


async def test_a_manifest_commands_and_files(client):
    manifest = Manifest(entries={"docs/a.txt": File(content=b"from the manifest\n")})
    session = await client.create(manifest=manifest, options=SteadSandboxClientOptions(env={"COLOR": "red"}))
    async with session:
        assert (await session.exec("cat docs/a.txt; echo $COLOR $PWD")).stdout == b"from the manifest\nred /workspace\n"
        failed = await session.exec("sh", "-c", "echo oops >&2; exit 3", shell=False)
        assert (failed.exit_code, failed.stderr) == (3, b"oops\n")
        await session.write(Path("b.bin"), io.BytesIO(b"\x00\xff"))
        assert (await session.read(Path("b.bin"))).read() == b"\x00\xff"
        with pytest.raises(WorkspaceReadNotFoundError):
            await session.read(Path("missing"))
        with pytest.raises(InvalidManifestPathError):
            await session.read(Path("/etc/hostname"))
        with pytest.raises(ExecTimeoutError):
            await session.exec("sleep 60", timeout=0.5)
        together = await asyncio.gather(*(session.exec(f"sleep 0.2; echo {n}") for n in range(5)))
        assert [one.stdout for one in together] == [f"{n}\n".encode() for n in range(5)]
    await client.delete(session)


async def test_a_workspace_is_packed_and_unpacked(client):
    one, other = await client.create(), await client.create()
    async with one, other:
        await one.exec("mkdir -p sub; echo text > sub/file; chmod 755 sub/file")
        await other.hydrate_workspace(await one.persist_workspace())
        assert (await other.exec("cat sub/file; stat -c %a sub/file")).stdout == b"text\n755\n"
    for session in (one, other):
        await client.delete(session)


async def test_an_interactive_program_is_typed_into(client):
    session = await client.create()
    async with session:
        update = await session.pty_exec_start("python3", "-q", shell=False, tty=True, yield_time_s=5)
        assert update.process_id is not None and b">>>" in update.output
        update = await session.pty_write_stdin(session_id=update.process_id, chars="6 * 7\r", yield_time_s=1)
        assert b"42" in update.output
        update = await session.pty_write_stdin(session_id=update.process_id, chars="exit(3)\r", yield_time_s=10)
        assert (update.process_id, update.exit_code) == (None, 3)
    await client.delete(session)


async def test_an_exposed_port_is_opened_from_outside_also_after_resume(client, server):
    session = await client.create(options=SteadSandboxClientOptions(exposed_ports=(8123,)))
    await session.start()
    await session.exec("echo from inside > page; python3 -m http.server 8123 --bind 127.0.0.1 >/dev/null 2>&1 &")
    session = await client.resume(client.deserialize_session_state(client.serialize_session_state(session.state)))
    async with session:
        endpoint = await session.resolve_exposed_port(8123)
        assert endpoint.url_for("http") == f"http://{endpoint.host}:{server.address.split(':')[1]}/"

        def answer():
            status, _, body = ask(server, f"{endpoint.host}:{endpoint.port}", "/page")
            return body if status == 200 else None

        assert await asyncio.to_thread(until, answer, "the program to listen") == "from inside\n"
        with pytest.raises(ExposedPortUnavailableError):
            await session.resolve_exposed_port(8124)
    await client.delete(session)


def test_the_example_works_in_one_sandbox_and_deletes_it():
    assert printed("openai_agent") == "The last one is ten.\nthe file is still there: 10\n"
    with Stead.connect() as stead:
        assert list(stead.sandboxes.list(label="example=openai")) == []


async def test_a_session_is_resumed_after_its_program_was_killed(client):
    victim = subprocess.Popen([sys.executable, "-c", VICTIM], stdout=subprocess.PIPE, text=True)
    payload = json.loads(victim.stdout.readline())
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait()
    victim.stdout.close()
    session = await client.resume(client.deserialize_session_state(payload))
    async with session:
        assert await session.running()
        assert (await session.read(Path("result.txt"))).read() == b"precious\n"
        before = (await session.exec("cat beat")).stdout
        deadline = asyncio.get_running_loop().time() + 30
        while (await session.exec("cat beat")).stdout == before:
            assert asyncio.get_running_loop().time() < deadline, "the background process has ended"
            await asyncio.sleep(0.05)
    await client.delete(session)
    with Stead.connect() as stead:
        assert list(stead.sandboxes.list(label="kind=victim")) == []


async def test_a_session_whose_sandbox_was_deleted_gets_another_one(client):
    manifest = Manifest(entries={"a.txt": File(content=b"again\n")})
    session = await client.create(manifest=manifest)
    await session.start()
    payload = client.serialize_session_state(session.state)
    await client.delete(session)
    session = await client.resume(client.deserialize_session_state(payload))
    async with session:
        assert (await session.exec("cat a.txt")).stdout == b"again\n"
    await client.delete(session)
