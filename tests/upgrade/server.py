"""A home directory whose server is started and stopped, and the command line of any version against it."""

import json
import os
import pathlib
import signal
import subprocess
import time
import urllib.request

WAIT_SECONDS = 60


class Failed(Exception):
    """What did not hold, and what was seen instead."""


def wait_for(what, look):
    """Returns the first true value of `look`."""
    end = time.monotonic() + WAIT_SECONDS
    while not (seen := look()):
        if time.monotonic() > end:
            raise Failed(f"no {what} after {WAIT_SECONDS} s")
        time.sleep(0.05)
    return seen


def same(what, expected, seen):
    """Fails if two values differ."""
    if expected != seen:
        raise Failed(f"{what}: expected {expected!r}, got {seen!r}")


def is_alive(pid):
    """Whether a process runs; a zombie does not."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Home:
    """A home directory and its server; leaving it ends all processes and mounts of the home."""

    def __init__(self, place, ending):
        place.chmod(0o755)
        self.path = place / "home"
        self.work = place / "work"
        self.user = place / "user"
        for directory in (self.path, self.work, self.user):
            directory.mkdir()
        self.ending, self.place = ending, place
        self.server, self.address, self.started = None, "127.0.0.1:0", 0
        self.programs = []
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(self.user), "STEAD_HOME": str(self.path)}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for program in self.programs:
            program.kill()
            program.wait()
        if self.server is not None:
            self.server.kill()
            self.server.wait()
        subprocess.run([self.ending, "namespace", "end", self.path], check=False, capture_output=True)
        for file in self.path.glob("run/*/host.pid"):
            try:
                os.kill(int(file.read_text()), signal.SIGKILL)
            except (ValueError, ProcessLookupError):
                pass

    def start(self, binary, provider):
        """Starts a server; later ones get the address of the first."""
        self.started += 1
        with (self.place / f"log-{self.started}").open("wb") as log:
            command = [binary, "serve", "--listen", self.address, "--provider", provider]
            self.server = subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL,
                                           stdout=subprocess.PIPE, stderr=log, text=True, cwd=self.work)
        line = self.server.stdout.readline()
        if not line.startswith("listening on http://"):
            raise Failed(f"{binary} does not start: {line!r}")
        self.address = line.strip().removeprefix("listening on http://")
        wait_for("ready server", lambda: self.attempt(binary, "status").returncode == 0)

    def stop(self, with_signal=signal.SIGTERM):
        """Ends the server, but not its hosts."""
        self.server.send_signal(with_signal)
        try:
            self.server.wait(WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            raise Failed(f"the server does not stop by signal {with_signal}") from None
        self.server = None

    def attempt(self, binary, *arguments, text=None):
        """Runs a command line to its end."""
        try:
            return subprocess.run([binary, *arguments], env=self.environment, input=text, capture_output=True, text=True,
                                  timeout=WAIT_SECONDS, cwd=self.work, check=False)
        except subprocess.TimeoutExpired:
            raise Failed(f"no end of `stead {' '.join(arguments)}` after {WAIT_SECONDS} s") from None

    def run(self, binary, *arguments, text=None):
        """Runs a command line that must succeed; returns what it printed."""
        done = self.attempt(binary, *arguments, text=text)
        if done.returncode != 0:
            raise Failed(f"`{' '.join(arguments)}` by {binary} exits with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout.rstrip("\n")

    def exec(self, thread, command):
        """Runs a command by the API; returns its output."""
        request = urllib.request.Request(f"http://{self.address}/api/threads/{thread}/exec", method="POST")
        request.add_header("Authorization", f"Bearer {(self.path / 'token').read_text().strip()}")
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, json.dumps({"command": command}).encode(), WAIT_SECONDS) as answer:
                receipt = json.load(answer)
        except OSError as error:
            raise Failed(f"{command!r} in {thread}: {error}") from error
        if receipt["exit_code"] != 0:
            raise Failed(f"{command!r} in {thread}: {receipt}")
        return receipt["stdout"].rstrip("\n")

    def begin(self, binary, *arguments):
        """Starts a command line that runs on."""
        program = subprocess.Popen([binary, *arguments], env=self.environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.work)
        self.programs.append(program)
        return program

    def logs(self):
        """Returns the end of each server's log."""
        ends = []
        for number in range(1, self.started + 1):
            lines = (self.place / f"log-{number}").read_text(errors="replace").splitlines()
            ends.append(f"server {number}:\n" + "\n".join(lines[-30:]))
        return "\n".join(ends)
