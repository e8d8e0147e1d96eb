"""A Stead server for one suite, with its own home and a free port."""

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request

DEADLINE = 60


class Server:
    """`stead serve` in a home of its own."""

    def __init__(self):
        self.binary = os.environ["STEAD_BIN"]
        self.home = tempfile.mkdtemp(prefix="stead-sdk-")
        self.address = None
        self.process = None
        self.start()

    @property
    def url(self):
        return f"http://{self.address}"

    @property
    def token(self):
        with open(os.path.join(self.home, "token"), encoding="ascii") as file:
            return file.read().strip()

    def start(self):
        """Starts the server, at its previous address if it had one."""
        self.log = open(os.path.join(self.home, "log"), "a+b")
        self.process = subprocess.Popen(
            [self.binary, "serve", "--home", self.home, "--listen", self.address or "127.0.0.1:0"],
            stdout=subprocess.PIPE,
            stderr=self.log,
            env={**os.environ, "STEAD_LOG": "warn"},
        )
        line = self.process.stdout.readline().decode()
        found = re.match(r"listening on http://(\S+)", line)
        if not found:
            self.log.seek(0)
            raise RuntimeError(f"the server printed {line!r}\n{self.log.read().decode()}")
        self.address = found.group(1)

    def kill(self):
        """Kills the server, as a crash would."""
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()

    def close(self):
        """Ends the server and its hosts."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait()
        self.process.stdout.close()
        self.log.close()
        # Sandboxes hold mounts and loop devices; `local` hosts are plain processes.
        subprocess.run([self.binary, "namespace", "end", self.home], check=False, timeout=DEADLINE)
        run = os.path.join(self.home, "run")
        for name in os.listdir(run) if os.path.isdir(run) else []:
            self.end_host(os.path.join(run, name))
        shutil.rmtree(self.home, ignore_errors=True)

    @staticmethod
    def end_host(directory):
        """Ends a host that a test left running, by its pid file."""
        try:
            with open(os.path.join(directory, "host.pid"), encoding="ascii") as file:
                pid = int(file.read().split()[0])
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if b"host" in file.read().split(b"\0"):
                    os.kill(pid, signal.SIGKILL)
        except (OSError, ValueError, IndexError):
            pass


# A program that listens on a free port and prints it. It answers a plain request with its path and headers, and
# echoes all data after an upgrade.
LISTENER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.headers.get("Upgrade") == "echo":
            self.send_response(101)
            self.send_header("Connection", "upgrade")
            self.send_header("Upgrade", "echo")
            self.end_headers()
            while data := self.rfile.read1():
                self.wfile.write(data)
            return
        body = f"{self.path} {sorted(name.lower() for name in self.headers)}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Inside", "yes")
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


def ask(server, host, path, headers=None):
    """Requests a path under a host name of a sandbox. Returns status, headers and body."""
    lower = lambda given: {name.lower(): value for name, value in given.items()}  # noqa: E731
    request = urllib.request.Request(f"{server.url}{path}", headers={"Host": host, **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
            return answer.status, lower(answer.headers), answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, lower(error.headers), error.read().decode()


def echo(server, host, data, headers=""):
    """Upgrades a connection under a host name of a sandbox, sends data, and returns the echo."""
    address, port = server.address.rsplit(":", 1)
    with socket.create_connection((address, int(port)), timeout=DEADLINE) as stream:
        head = f"GET /up HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: echo\r\n{headers}\r\n"
        stream.sendall(head.encode())
        received = b""
        while b"\r\n\r\n" not in received:
            received += stream.recv(4096) or b"\r\n\r\nclosed"
        head, received = received.split(b"\r\n\r\n", 1)
        if not head.startswith(b"HTTP/1.1 101"):
            raise AssertionError(head)
        stream.sendall(data)
        while len(received) < len(data):
            more = stream.recv(4096)
            if not more:
                break
            received += more
        return received


def until(condition, what, deadline=DEADLINE):
    """Waits for a condition. After the deadline, fails with the value that it last had."""
    end = time.monotonic() + deadline
    while True:
        seen = condition()
        if seen:
            return seen
        if time.monotonic() > end:
            raise AssertionError(f"waited {deadline} s for {what}; last saw {seen!r}")
        time.sleep(0.02)


class Slow(unittest.TextTestResult):
    """Reports slow tests."""

    def startTest(self, test):
        self.began = time.monotonic()
        super().startTest(test)

    def stopTest(self, test):
        taken = time.monotonic() - self.began
        if taken > 10:
            print(f"slow: {test.id()} took {taken:.0f} s", flush=True)
        super().stopTest(test)


def main():
    """Runs the tests of the main module."""
    runner = unittest.TextTestRunner(verbosity=int(os.environ.get("VERBOSE", "1")), resultclass=Slow)
    unittest.main(testRunner=runner)
