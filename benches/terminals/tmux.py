"""tmux as a subject of the measurements. A viewer is a real `tmux attach` on a PTY."""

import fcntl
import os
import pty
import select
import shlex
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import tty

from . import processes
from .wire import TIMEOUT, Closed

CONFIGURATION = """
set -g history-limit 5000
set -g status off
set -g default-terminal xterm-256color
set -g exit-empty off
set -sg escape-time 0
"""


class Viewer:
    def __init__(self, arguments, environment):
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.execvpe(arguments[0], arguments, environment)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))

    def read(self):
        if not select.select([self.master], [], [], TIMEOUT)[0]:
            raise TimeoutError("tmux shows nothing")
        try:
            data = os.read(self.master, 1 << 16)
        except OSError:
            raise Closed from None
        if not data:
            raise Closed
        return data

    def quiet(self, seconds=0.1):
        """Reads until no output came for a while. Returns the number of bytes."""
        count = 0
        while select.select([self.master], [], [], seconds)[0]:
            count += len(os.read(self.master, 1 << 16))
        return count

    def send(self, data):
        os.write(self.master, data)

    def close(self):
        os.close(self.master)
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.waitpid(self.pid, 0)


class Server:
    name = "tmux"
    # Seconds after which the resources of idle terminals have been released.
    release_after = 1

    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="tmux-bench-")
        self.socket = os.path.join(self.directory, "socket")
        self.number = 0
        with open(os.path.join(self.directory, "configuration"), "w") as file:
            file.write(CONFIGURATION)
        with open(os.path.join(self.directory, ".bashrc"), "w") as file:
            file.write("PS1='ready> '\n")
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": self.directory,
            "LANG": "C.UTF-8",
            "SHELL": "/bin/bash",
            "TERM": "xterm-256color",
        }

    def arguments(self, *words):
        return ["tmux", "-S", self.socket, "-f", os.path.join(self.directory, "configuration"), *words]

    def run(self, *words):
        done = subprocess.run(
            self.arguments(*words), env=self.environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    def start(self):
        self.run("start-server")
        self.pid = int(self.run("display-message", "-p", "#{pid}"))

    def pids(self):
        return [self.pid]

    def shells(self):
        return processes.below([self.pid])

    def new(self, command):
        self.number += 1
        words = ["new-session", "-d", "-s", f"t{self.number}", "-x", "80", "-y", "24", "-c", "/"]
        return f"t{self.number}", words + [shlex.join(command) if command else "bash"]

    def create(self, command=None):
        name, words = self.new(command)
        self.run(*words)
        return name

    def create_many(self, count, command=None):
        names = []
        while len(names) < count:
            line = []
            for _ in range(min(50, count - len(names))):
                name, words = self.new(command)
                names.append(name)
                line += [*words, ";"]
            self.run(*line[:-1])
        return names

    def attach(self, terminal):
        viewer = Viewer(self.arguments("attach", "-t", terminal), self.environment)
        viewer.read()
        viewer.quiet()
        return viewer

    def remove(self, terminal):
        self.run("kill-session", "-t", terminal)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)

    def stop(self):
        subprocess.run(self.arguments("kill-server"), env=self.environment, capture_output=True)
        shutil.rmtree(self.directory, ignore_errors=True)


def raw(descriptor):
    """Disables echo and line editing of a terminal."""
    tty.setraw(descriptor)
