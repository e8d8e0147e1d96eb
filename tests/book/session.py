"""One page's home directory, server and shell, and the running of its blocks."""

import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from pages import ROOT

BLOCK_SECONDS = 60
START_SECONDS = 60
POLL_SECONDS = 0.05
# Below the range from which the kernel takes ports for outgoing connections and for port 0.
PORTS = range(20000, 32000)
# Reads the names of scripts, runs each in this shell with its output in a file, and reports the status.
DRIVER = r"""
set -o pipefail
while IFS=$'\t' read -r mode script output <&3; do
  if [ "$mode" = script ]; then
    set -eE; trap 'echo "line $LINENO: exit status $?" >&2' ERR
    . "$script" >"$output" 2>&1 </dev/null
    status=$?
    trap - ERR; set +eE
  else
    . "$script" >"$output" 2>&1 </dev/null
    status=$?
  fi
  echo "$status" >&4
done
"""


class Failed(Exception):
    pass


def free_port():
    for _ in range(200):
        port = random.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise Failed("no free port found")


def matches(expected, actual):
    """Compares lines; `…` stands for any text in a line, and alone for any lines."""
    if not expected:
        return not actual
    if expected[0].strip() == "…":
        return any(matches(expected[1:], actual[skip:]) for skip in range(len(actual) + 1))
    return bool(actual) and line_matches(expected[0], actual[0]) and matches(expected[1:], actual[1:])


def line_matches(expected, actual):
    pattern = ".*".join(re.escape(part) for part in expected.rstrip().split("…"))
    return re.fullmatch(pattern, actual.rstrip()) is not None


def typed(text):
    """Splits a console block into commands and their expected output."""
    steps = []
    for line in text.splitlines():
        if line.startswith("$ "):
            steps.append((line[2:], []))
        elif line.startswith("> ") and steps and not steps[-1][1]:
            steps[-1] = (steps[-1][0] + "\n" + line[2:], [])
        elif not steps:
            raise Failed("a console block begins with `$ `")
        else:
            steps[-1][1].append(line)
    return steps


class Session:
    """Everything that a page uses; `close` ends it and removes it."""

    def __init__(self, binary, python, user=None):
        self.user = user
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="stead-book-"))
        self.home = self.directory / ".stead"
        self.port = free_port()
        self.servers = []
        self.shell = None
        self.count = 0
        programs = self.directory / "bin"
        programs.mkdir()
        (programs / "stead").symlink_to(binary)
        for name in ("examples", "sdk", "dist"):
            (self.directory / name).symlink_to(ROOT / name)
        (self.directory / "scripts").mkdir()
        if user is not None:
            for path in (self.directory, programs, self.directory / "scripts"):
                os.chown(path, user, user)
        self.environment = {
            "PATH": f"{programs}:{python.parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(self.directory),
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            "STEAD_LISTEN": f"127.0.0.1:{self.port}",
            "STEAD_SANDBOX_WARM": "0",
            "PYTHONUNBUFFERED": "1",
            # A shell that ends writes its history when the directory may already be gone.
            "HISTFILE": "",
        }

    def _start(self, command, **options):
        if self.user is not None:
            options |= {"user": self.user, "group": self.user, "extra_groups": []}
        return subprocess.Popen(
            command, cwd=self.directory, env=self.environment, start_new_session=True, **options
        )

    def own(self, text):
        """Puts the address of this page's server in the place of the default one."""
        return text.replace("127.0.0.1:7832", f"127.0.0.1:{self.port}")

    def serve(self, command="stead serve", expected=()):
        """Starts a server and waits until it has printed the expected lines."""
        output = self.directory / f"serve-{len(self.servers)}.log"
        with output.open("wb") as log:
            process = self._start(shlex.split(self.own(command)), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.servers.append(process)
        wanted = [self.own(line) for line in expected if line.strip() and line.strip() != "…"] or ["listening on …"]
        end = time.monotonic() + START_SECONDS
        while True:
            lines = output.read_text(errors="replace").splitlines()
            missing = [line for line in wanted if not any(line_matches(line, one) for one in lines)]
            if not missing:
                return
            if process.poll() is not None or time.monotonic() > end:
                raise Failed(f"`{command}` did not print {missing}; it printed:\n" + "\n".join(lines))
            time.sleep(POLL_SECONDS)

    def _send(self, mode, text, seconds):
        """Runs text in the page's shell; returns its status and output."""
        if self.shell is None:
            names_in, names_out = os.pipe()
            status_in, status_out = os.pipe()
            command = ["bash", "--norc", "-c", f"exec 3<&{names_in} 4>&{status_out}\n{DRIVER}"]
            self.shell = self._start(command, stdin=subprocess.DEVNULL, pass_fds=(names_in, status_out))
            os.close(names_in)
            os.close(status_out)
            self.names, self.statuses = os.fdopen(names_out, "w"), status_in
            os.set_blocking(status_in, False)
        self.count += 1
        script = self.directory / "scripts" / f"{self.count}.sh"
        output = self.directory / "scripts" / f"{self.count}.out"
        script.write_text(self.own(text))
        script.chmod(0o644)
        self.names.write(f"{mode}\t{script}\t{output}\n")
        self.names.flush()
        end = time.monotonic() + seconds
        seen = b""
        while not seen.endswith(b"\n"):
            for server in self.servers:
                server.poll()  # A page may wait for the end of a server that it has killed.
            try:
                part = os.read(self.statuses, 100)
            except BlockingIOError:
                part = None
            if part == b"":
                return self.shell.wait(), self._output(output)
            if part:
                seen += part
            elif time.monotonic() > end:
                raise Failed(f"not done after {seconds} s; it printed:\n{self._output(output)}")
            else:
                time.sleep(POLL_SECONDS)
        return int(seen), self._output(output)

    def _output(self, path):
        return path.read_text(errors="replace") if path.exists() else ""

    def run(self, block):
        if block.file is not None:
            path = self.directory / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.own(block.text))
            path.chmod(0o644)
        elif block.language == "sh":
            status, output = self._send("script", block.text, BLOCK_SECONDS)
            if status != 0:
                raise Failed(f"exit status {status}; it printed:\n{output}")
        elif block.language == "console":
            for command, expected in typed(block.text):
                self._type(command, expected)
        else:
            self._program(block)

    def _type(self, command, expected):
        if re.match(r"stead serve\b", command) and not command.endswith("&"):
            self.serve(command, expected)
            return
        status, output = self._send("console", command + "\n", BLOCK_SECONDS)
        lines = [self.own(line) for line in expected]
        while lines and not lines[-1].strip():
            lines.pop()
        if all(line.strip() == "…" for line in lines) and status != 0:
            raise Failed(f"`{command}` exited with {status}; it printed:\n{output}")
        # A slow machine makes the command line report what it waits for.
        printed = [line for line in output.splitlines() if not line.startswith("stead: waiting")]
        if lines and not matches(lines, printed):
            raise Failed(f"`{command}` printed:\n{output}\ninstead of:\n" + "\n".join(lines))

    def _program(self, block):
        path = self.directory / "scripts" / f"block-{block.line}.py"
        path.write_text(self.own(block.text))
        status, output = self._send("console", f"python3 {path}\n", BLOCK_SECONDS)
        if status != 0:
            raise Failed(f"exit status {status}; it printed:\n{output}")
        comments = re.findall(r"print\(.*# (.*)$", block.text, re.MULTILINE)
        lines = [line for comment in comments for line in comment.split(" / ")]
        if lines and not matches(lines, output.splitlines()):
            raise Failed(f"it printed:\n{output}\ninstead of:\n" + "\n".join(lines))

    def log(self):
        return "".join(self._output(path) for path in sorted(self.directory.glob("serve-*.log")))

    def close(self, binary):
        """Ends everything that the page started. Hosts outlive their server, so they are ended by their pids."""
        processes = [*self.servers, *([self.shell] if self.shell else [])]
        for process in self.servers:
            process.terminate()
        for process in processes:
            try:
                process.wait(10 if process in self.servers else 0.2)
            except subprocess.TimeoutExpired:
                pass
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        # Those of the page, and those that it made for a second server.
        homes = [path.parent for path in self.directory.rglob("stead.db")]
        for pid in (pid for home in homes for pid in home.glob("run/*/host.pid")):
            try:
                os.kill(int(pid.read_text()), signal.SIGKILL)
            except (ProcessLookupError, ValueError):
                pass
        for home in homes:
            if (home / "sandboxes").exists():
                subprocess.run([binary, "namespace", "end", home], check=False, timeout=BLOCK_SECONDS)
        shutil.rmtree(self.directory, ignore_errors=True)
