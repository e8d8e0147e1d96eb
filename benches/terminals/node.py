"""A Node server with node-pty, @xterm/headless and ws, like most web terminals."""

import os
import shutil
import subprocess
import tempfile

from . import processes
from .wire import Http, WebSocket

HERE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "peers", "node")


def install():
    if not os.path.isdir(os.path.join(HERE, "node_modules", "ws")):
        subprocess.run(
            ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"], cwd=HERE, check=True
        )


class Viewer:
    def __init__(self, server, terminal, receive_buffer=None):
        self.socket = WebSocket(server.address, f"/pty/{terminal}", None, receive_buffer)
        self.snapshot = None

    def greet(self):
        self.snapshot = self.socket.receive()[1]
        return self

    def read(self):
        return self.socket.receive()[1]

    def send(self, data):
        self.socket.send(data)

    def close(self):
        self.socket.close()


class Server:
    name = "node"
    # Seconds after which the resources of idle terminals have been released.
    release_after = 1

    def __init__(self):
        self.person = tempfile.mkdtemp(prefix="node-bench-")
        with open(os.path.join(self.person, ".bashrc"), "w") as file:
            file.write("PS1='ready> '\n")

    def start(self):
        environment = {"PATH": os.environ["PATH"], "HOME": self.person, "LANG": "C.UTF-8"}
        self.process = subprocess.Popen(
            ["node", "server.mjs"], cwd=HERE, env=environment, stdout=subprocess.PIPE
        )
        self.address = ("127.0.0.1", int(self.process.stdout.readline()))
        self.http = Http(self.address)

    def pids(self):
        return [self.process.pid]

    def shells(self):
        return processes.below([self.process.pid])

    def create(self, command=None):
        body = {"cmd": command or ["bash"], "cols": 80, "rows": 24}
        return self.http.json("POST", "/pty", body)["id"]

    def create_many(self, count, command=None):
        return [self.create(command) for _ in range(count)]

    def attach(self, terminal, **options):
        return Viewer(self, terminal, **options).greet()

    def remove(self, terminal):
        self.http.json("DELETE", f"/pty/{terminal}")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        below = self.shells()
        self.kill()
        self.process.stdout.close()
        for pid in below:
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                pass
        shutil.rmtree(self.person, ignore_errors=True)
