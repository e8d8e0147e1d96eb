"""Certificates: the one in the home directory, one from a file, and one that is not trusted."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from harness import Server

import stead
from stead import AsyncStead, RetryPolicy, Stead


async def names(client: AsyncStead) -> list[str]:
    async with client:
        return [thread.thread_id async for thread in client.threads.list()]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to create a certificate")
def test_only_the_certificate_of_the_server_is_trusted(server: Server, tmp_path: Path) -> None:
    for name in ("right", "wrong"):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
             "-subj", "/CN=example", "-addext", "subjectAltName=DNS:stead.example",
             "-keyout", tmp_path / f"{name}.key", "-out", tmp_path / f"{name}.pem"],
            check=True, capture_output=True,
        )  # fmt: skip
    home = tmp_path / "home"
    process = subprocess.Popen(
        [server.binary, "serve", "--home", home, "--listen", "127.0.0.1:0", "--provider", "local",
         "--tls-cert", tmp_path / "right.pem", "--tls-key", tmp_path / "right.key"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        found = re.match(r"listening on (https://\S+)", process.stdout.readline())
        assert found
        # The certificate is for another name, but the home directory contains it.
        with Stead(home=home) as client:
            assert client.url == found.group(1) and list(client.threads.list()) == []
        assert asyncio.run(names(AsyncStead(home=home))) == []
        for cacert in (tmp_path / "wrong.pem", None, tmp_path / "right.pem"):
            untrusting = AsyncStead(found.group(1), "x", cacert=cacert, home=tmp_path)
            with pytest.raises(stead.ConnectionFailed, match="not trusted"):
                asyncio.run(names(untrusting))
            with (
                Stead(found.group(1) + "/", "x", cacert=cacert, home=tmp_path, retry=RetryPolicy(deadline=5)) as other,
                pytest.raises(stead.ConnectionFailed, match="not trusted"),
            ):
                list(other.threads.list())
    finally:
        process.terminate()
        process.wait()
        process.stdout and process.stdout.close()
