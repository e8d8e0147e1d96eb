"""The supervisor of a session: starts, stops and kills its processes.

Each session has a supervisor, which is a process of its own. It is a subreaper, so background processes of
commands stay its descendants. It signals only its descendants, each by a pidfd, so that a reused pid is never
hit. When its input ends, it kills all of them.

Both ends of the pipe are here: `Supervisor` in the stand-in, `main` in the process. They exchange lines of JSON:

    {"id": 1, "do": "run", "command": "…", "cwd": "…", "env": {…}, "timeout": 50.0}
    {"id": 1, "stdout": "base64", "stderr": "base64", "exit_code": 0, "timed_out": false}
    {"id": 2, "do": "pause"}  {"id": 3, "do": "resume"}
    {"id": 4, "do": "measure"}
    {"id": 4, "ticks": 12, "memory": 8192}
    {"id": 5, "do": "pty.create", "cols": 80, "rows": 24, "cwd": "…", "env": {…}, "shell": "…"}
    {"id": 5, "pty": "pty-1"}
    {"id": 6, "do": "pty.input", "pty": "pty-1", "data": "base64"}  … "pty.resize"  "pty.kill"

and, as events, `{"pty": "pty-1", "output": "base64"}`, `{"pty": "pty-1", "exit_code": 0}`.
"""

import base64
import ctypes
import fcntl
import itertools
import json
import os
import pty
import selectors
import signal
import struct
import subprocess
import sys
import termios
import threading
import time

PR_SET_CHILD_SUBREAPER = 36
# The maximum output of a command per stream; the rest is dropped.
MAX_OUTPUT_BYTES = 8 << 20
# Seconds between two scans for processes that are ending.
POLL_INTERVAL = 0.05


class Ended(Exception):
    """The session has ended."""


class Supervisor:
    """The handle in the stand-in. Any thread may use it."""

    def __init__(self, directory, on_event):
        """`on_event` is called with the events of PTYs."""
        self.on_event = on_event
        command = [sys.executable, "-E", "-s", os.path.abspath(__file__), directory]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=directory)
        self.ids = itertools.count()
        self.lock = threading.Lock()
        self.waiting = {}
        threading.Thread(target=self._listen, daemon=True).start()

    def ask(self, **question):
        """Sends a request and waits for the reply."""
        with self.lock:
            if self.waiting is None:
                raise Ended
            number = next(self.ids)
            slot = self.waiting[number] = [threading.Event(), None]
            try:
                self.process.stdin.write(json.dumps({"id": number, **question}).encode() + b"\n")
                self.process.stdin.flush()
            except OSError:
                raise Ended from None
        slot[0].wait()
        if slot[1] is None:
            raise Ended
        return slot[1]

    def end(self):
        """Kills all processes and waits until none is left."""
        try:
            self.process.stdin.close()
        except OSError:
            pass
        self.process.wait()

    def _listen(self):
        for line in self.process.stdout:
            answer = json.loads(line)
            if "id" not in answer:
                self.on_event(answer)
                continue
            with self.lock:
                slot = self.waiting.pop(answer["id"])
            slot[1] = answer
            slot[0].set()
        with self.lock:
            left, self.waiting = self.waiting, None
        for slot in left.values():
            slot[0].set()


def descendants(root):
    """The descendants of a process: pid, parent, state and start time."""
    children_of = {}
    for name in os.listdir("/proc"):
        known = name.isdigit() and read_stat(int(name))
        if known:
            children_of.setdefault(known[1], []).append(known)
    found, queue = [], [root]
    while queue:
        children = children_of.get(queue.pop(), [])
        found += children
        queue += [child[0] for child in children]
    return found


def read_stat(pid):
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    # The name in parentheses may contain any character.
    fields = text[text.rindex(b")") + 2 :].split()
    return pid, int(fields[1]), fields[0].decode(), int(fields[19])


def stops(pid):
    """Whether a process stops before it runs again. One that waits in the kernel has not stopped yet: the parent of a
    `vfork` does so until its child, which may be stopped, executes a program."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            pending = [int(line.split()[1], 16) for line in file if line.startswith((b"SigPnd:", b"ShdPnd:"))]
    except OSError:
        return False
    return any(signals & 1 << (signal.SIGSTOP - 1) for signals in pending)


def usage(pids):
    """The CPU time of processes in ticks, and their memory in bytes."""
    ticks = memory = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                text = file.read()
            with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                shared = [line.split()[1] for line in file if line.startswith(b"Pss:")]
        except OSError:
            continue
        ticks += sum(int(field) for field in text[text.rindex(b")") + 2 :].split()[11:15])
        memory += sum(int(part) * 1024 for part in shared)
    return {"ticks": ticks, "memory": memory}


def send_signal(process, number):
    """Sends a signal to a process, unless its pid was reused."""
    pid, _, _, started_at = process
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return
    try:
        again = read_stat(pid)
        if again and again[3] == started_at:
            signal.pidfd_send_signal(descriptor, number)
    except OSError:
        pass
    finally:
        os.close(descriptor)


class Command:
    """A running command. It is done when it has ended and its output is closed, or at its timeout."""

    def __init__(self, question, home):
        self.id = question["id"]
        self.deadline = time.monotonic() + question["timeout"]
        self.exit_code = None
        self.expired = self.timed_out = False
        env = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": home, "LANG": "C.UTF-8"}
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", question["command"]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=os.path.join(home, question.get("cwd") or ""),
            env={**env, **(question.get("env") or {})},
            start_new_session=True,
        )
        self.open = {self.process.stdout: bytearray(), self.process.stderr: bytearray()}
        self.streams = list(self.open.values())

    def read(self, stream):
        """Reads the available output. Returns whether more may come."""
        data = os.read(stream.fileno(), 65536)
        kept = self.open[stream]
        kept += data[: MAX_OUTPUT_BYTES - len(kept)]
        if not data:
            del self.open[stream]
        return bool(data)

    def expire(self):
        """Kills its process group, which exists as long as its leader was not reaped."""
        self.expired = True
        if self.exit_code is None:
            self.timed_out = True
            os.killpg(self.process.pid, signal.SIGKILL)

    def answer(self):
        stdout, stderr = (base64.b64encode(stream).decode() for stream in self.streams)
        code = None if self.timed_out else self.exit_code
        return {"id": self.id, "stdout": stdout, "stderr": stderr, "exit_code": code, "timed_out": self.timed_out}


class Pty:
    """A program on a PTY. It is done when it has ended and its output was read."""

    def __init__(self, question, home, name):
        self.name = name
        self.exit_code = None
        self.written = b""
        master, slave = pty.openpty()
        self.master = open(master, "r+b", buffering=0)  # noqa: SIM115
        os.set_blocking(master, False)
        self.resize(question)
        shell = question.get("shell") or ("/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh")
        env = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": home}
        try:
            self.process = subprocess.Popen(
                [shell],
                stdin=slave,
                stdout=slave,
                stderr=slave,
                cwd=os.path.join(home, question.get("cwd") or ""),
                env={**env, **(question.get("env") or {})},
                start_new_session=True,
                preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            )
        except BaseException:
            self.master.close()
            raise
        finally:
            os.close(slave)

    def read(self, _):
        """Forwards the available output. Returns whether more may come."""
        try:
            data = self.master.read(65536)
        except OSError:
            return False
        if data:
            send({"pty": self.name, "output": base64.b64encode(data).decode()})
        return data != b""

    def write(self, data):
        """Writes input; what does not fit is queued."""
        self.written += data
        try:
            taken = self.master.write(self.written) if self.written else 0
            self.written = self.written[taken or 0 :][: 1 << 20]
        except OSError:
            self.written = b""

    def resize(self, size):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", size["rows"], size["cols"], 0, 0))

    def kill(self):
        if self.exit_code is None:
            os.killpg(self.process.pid, signal.SIGKILL)


class Loop:
    """The process that owns the session's processes."""

    def __init__(self, home):
        self.home = home
        self.commands = []
        self.ptys, self.made = {}, itertools.count(1)
        self.stopped = []
        self.paused_at = None
        self.line = b""
        self.selector = selectors.DefaultSelector()
        self.selector.register(0, selectors.EVENT_READ, None)
        self.woken, wake = os.pipe()
        for end in (self.woken, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.selector.register(self.woken, selectors.EVENT_READ, None)

    def run(self):
        while True:
            for key, _ in self.selector.select(self.wait()):
                if key.fd == self.woken:
                    os.read(self.woken, 4096)
                elif key.fd == 0:
                    data = os.read(0, 65536)
                    if not data:
                        return self.end()
                    *lines, self.line = (self.line + data).split(b"\n")
                    for line in lines:
                        self.do(json.loads(line))
                elif not key.data.read(key.fileobj):
                    # A PTY is closed when its program ends.
                    (self.selector.unregister if isinstance(key.data, Pty) else self.close)(key.fileobj)
            self.reap()
            self.settle()

    def wait(self):
        if any(terminal.written for terminal in self.ptys.values()):
            return POLL_INTERVAL
        if self.paused_at is not None or not self.commands:
            return None
        return max(0, min(command.deadline for command in self.commands) - time.monotonic())

    def do(self, question):
        if question["do"] == "run":
            try:
                command = Command(question, self.home)
            except OSError as error:
                stderr = base64.b64encode(str(error).encode()).decode()
                return send({"id": question["id"], "stdout": "", "stderr": stderr, "exit_code": 126, "timed_out": False})
            self.commands.append(command)
            for stream in command.open:
                self.selector.register(stream, selectors.EVENT_READ, command)
        elif question["do"] == "pause":
            self.pause()
            send({"id": question["id"]})
        elif question["do"] == "resume":
            self.resume()
            send({"id": question["id"]})
        elif question["do"].startswith("pty."):
            send({"id": question["id"], **self.on_pty(question)})
        elif question["do"] == "measure":
            # The supervisor is counted, too: no session uses no memory.
            send({"id": question["id"], **usage([os.getpid(), *(process[0] for process in descendants(os.getpid()))])})

    def on_pty(self, question):
        if question["do"] == "pty.create":
            try:
                terminal = Pty(question, self.home, f"pty-{next(self.made)}")
            except OSError as error:
                return {"error": str(error)}
            self.ptys[terminal.name] = terminal
            self.selector.register(terminal.master, selectors.EVENT_READ, terminal)
            return {"pty": terminal.name}
        terminal = self.ptys.get(question["pty"])
        if not terminal:
            return {}
        if question["do"] == "pty.input":
            terminal.write(base64.b64decode(question["data"]))
        elif question["do"] == "pty.resize":
            terminal.resize(question)
        elif question["do"] == "pty.kill":
            terminal.kill()
        return {}

    def pause(self):
        """Stops all processes, until a scan finds none that runs."""
        if self.paused_at is not None:
            return
        self.paused_at = time.monotonic()
        while True:
            running = [process for process in descendants(os.getpid()) if process[2] not in "TtZX" and not stops(process[0])]
            if not running:
                return
            self.stopped += [p for p in running if p not in self.stopped]
            for process in running:
                send_signal(process, signal.SIGSTOP)

    def resume(self):
        if self.paused_at is None:
            return
        for process in self.stopped:
            send_signal(process, signal.SIGCONT)
        # Timeouts do not advance while the processes are stopped.
        for command in self.commands:
            command.deadline += time.monotonic() - self.paused_at
        self.stopped, self.paused_at = [], None

    def reap(self):
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for running in [*self.commands, *self.ptys.values()]:
                if running.process.pid == pid and running.exit_code is None:
                    code = os.waitstatus_to_exitcode(status)
                    running.process.returncode = code
                    running.exit_code = code if code >= 0 else 128 - code

    def settle(self):
        """Replies to the commands that are done."""
        now = time.monotonic()
        for command in list(self.commands):
            if self.paused_at is None and now >= command.deadline and not command.expired:
                command.expire()
            if command.exit_code is None or (command.open and not command.expired):
                continue
            for stream in list(command.open):
                while self.ready(stream) and command.read(stream):
                    pass
                command.open.pop(stream, None)
                self.close(stream)
            self.commands.remove(command)
            send(command.answer())
        for terminal in list(self.ptys.values()):
            terminal.write(b"")
            if terminal.exit_code is None:
                continue
            # Background processes may keep the output open; do not wait for them.
            for _ in range(64):
                if not self.ready(terminal.master) or not terminal.read(None):
                    break
            if terminal.master in self.selector.get_map():
                self.selector.unregister(terminal.master)
            terminal.master.close()
            del self.ptys[terminal.name]
            send({"pty": terminal.name, "exit_code": terminal.exit_code})

    @staticmethod
    def ready(stream):
        with selectors.DefaultSelector() as once:
            once.register(stream, selectors.EVENT_READ)
            return bool(once.select(0))

    def close(self, stream):
        self.selector.unregister(stream)
        stream.close()

    def end(self):
        while True:
            left = descendants(os.getpid())
            if not left:
                return
            for process in left:
                send_signal(process, signal.SIGKILL)
            with selectors.DefaultSelector() as once:
                once.register(self.woken, selectors.EVENT_READ)
                if once.select(POLL_INTERVAL):
                    os.read(self.woken, 4096)
            self.reap()


def send(answer):
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main():
    # Ctrl-C is meant for the process that started the stand-in. A handler is not inherited, unlike SIG_IGN.
    signal.signal(signal.SIGINT, lambda *_: None)
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        sys.exit("supervisor: cannot be a subreaper")
    Loop(sys.argv[1]).run()


if __name__ == "__main__":
    main()
