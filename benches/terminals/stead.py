"""Stead as a subject of the measurements."""

import gzip
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

from . import processes
from .wire import Http, WebSocket

SHELLS = ("bash", "cat", "sh", "sleep", "head", "tr", "stty", "python3")


class Viewer:
    """A WebSocket to a terminal after the greeting. `read` returns output."""

    def __init__(self, server, terminal, query="", receive_buffer=None):
        path = f"/api/terminals/{terminal}/ws?{query}"
        self.socket = WebSocket(server.address, path, server.headers, receive_buffer)
        self.snapshot, self.offset = b"", None
        self.snapshot_head = None

    def greet(self):
        """Reads the greeting and, unless it resumes, the picture."""
        while self.offset is None:
            self.step()
        return self

    def step(self):
        """Receives one message. Returns the output in it, which may be empty."""
        kind, data = self.socket.receive()
        if kind == WebSocket.TEXT:
            message = json.loads(data)
            if message["type"] == "hello" and message["resumed"]:
                self.offset = message["offset"]
            if message["type"] == "snapshot":
                self.snapshot_head = message
            if message["type"] == "gap":
                raise RuntimeError(f"a gap: {message}")
            return b""
        if self.snapshot_head:
            head, self.snapshot_head = self.snapshot_head, None
            self.snapshot = gzip.decompress(data) if head.get("encoding") == "gzip" else data
            self.offset = head["offset"]
            return b""
        self.offset += len(data)
        return data

    def read(self):
        while True:
            data = self.step()
            if data:
                return data

    def send(self, data):
        self.socket.send(data)

    def close(self):
        self.socket.close()


class Server:
    name = "stead"
    # Seconds after which the resources of idle terminals have been released.
    release_after = 8

    def __init__(self, binary, home_on=None, environment=None):
        self.binary = binary
        self.environment = environment or {}
        self.home = tempfile.mkdtemp(prefix="stead-bench-", dir=home_on)
        self.person = tempfile.mkdtemp(prefix="stead-bench-person-")
        with open(os.path.join(self.person, ".bashrc"), "w") as file:
            file.write("PS1='ready> '\n")
        self.process = None

    def start(self, binary=None):
        """Starts the server. Returns the seconds until it listens."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": self.person,
            "LANG": "C.UTF-8",
            "SHELL": "/bin/bash",
            "STEAD_PROVIDER": "local",
            "STEAD_TERMINAL_MAX_PER_THREAD": "2000",
            "STEAD_LOG_LEVEL": "warn",
            **self.environment,
        }
        began = time.perf_counter()
        self.log = open(os.path.join(self.person, "stead.log"), "a")
        self.process = subprocess.Popen(
            [binary or self.binary, "serve", "--listen", "127.0.0.1:0", "--home", self.home],
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=environment,
            start_new_session=True,
        )
        line = self.process.stdout.readline().decode()
        if not line.startswith("listening on http://"):
            raise RuntimeError(f"stead printed {line!r}; see {self.log.name}")
        host, _, port = line.strip().rpartition("/")[2].rpartition(":")
        self.address = (host, int(port))
        with open(os.path.join(self.home, "token")) as file:
            self.headers = {"Authorization": f"Bearer {file.read().strip()}"}
        self.http = Http(self.address, self.headers)
        return time.perf_counter() - began

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def hosts(self):
        home = self.home.encode()
        return [
            pid
            for pid, (_, _, line) in processes.table().items()
            if home in line and b"\0host\0" in line
        ]

    def pids(self):
        """The server, its hosts and the session leaders: all processes but shells and their children."""
        everything = processes.table()
        hosts = self.hosts()
        held = [pid for pid in processes.below(hosts, everything) if everything[pid][1] not in SHELLS]
        return [self.process.pid, *hosts, *held]

    def shells(self):
        everything = processes.table()
        return [pid for pid in processes.below(self.hosts(), everything) if everything[pid][1] in SHELLS]

    def create(self, command=None, thread="bench"):
        body = {"cols": 80, "rows": 24, "cwd": "/"}
        if command:
            body["cmd"] = command
        return self.http.json("POST", f"/api/threads/{thread}/terminals", body)["terminal_id"]

    def create_many(self, count, command=None):
        return [self.create(command) for _ in range(count)]

    def attach(self, terminal, query="", **options):
        return Viewer(self, terminal, query, **options).greet()

    def remove(self, terminal):
        self.http.json("DELETE", f"/api/terminals/{terminal}")

    def exec(self, command, thread="bench", http=None, **options):
        body = {"command": command, **options}
        return (http or self.http).json("POST", f"/api/threads/{thread}/exec", body)

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for host in self.hosts():
            below = processes.below([host])
            for pid in [host, *below]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        self.log.close()
        # The disks of its workspaces are mounted.
        subprocess.run([self.binary, "namespace", "end", self.home], check=False, capture_output=True)
        shutil.rmtree(self.home, ignore_errors=True)
        shutil.rmtree(self.person, ignore_errors=True)
