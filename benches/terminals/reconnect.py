"""Attaching and reconnecting: time to the prompt, the picture and the missed output, and lost bytes."""

import os
import pty
import select
import time

from . import processes, programs
from .report import Row, middle, ms
from .tmux import Viewer as TmuxViewer

PROMPT = b"ready>"


def prompt_times(server, count):
    """Returns the seconds from the request for a terminal to its prompt."""
    times = []
    for _ in range(count + 2):
        began = time.perf_counter()
        if server.name == "tmux":
            server.number += 1
            name = f"t{server.number}"
            viewer = TmuxViewer(server.arguments("new-session", "-s", name, "bash"), server.environment)
            seen = b""
            while PROMPT not in seen:
                seen += viewer.read()
        else:
            name = server.create()
            viewer = server.attach(name)
            seen = viewer.snapshot
            while PROMPT not in seen:
                seen += viewer.read()
        times.append(time.perf_counter() - began)
        viewer.close()
        server.remove(name)
    return times[2:]


def raw_prompt_times(environment, count):
    times = []
    for _ in range(count):
        began = time.perf_counter()
        pid, master = pty.fork()
        if pid == 0:
            os.execvpe("bash", ["bash"], environment)
        seen = b""
        while PROMPT not in seen:
            select.select([master], [], [])
            seen += os.read(master, 4096)
        times.append(time.perf_counter() - began)
        os.kill(pid, 9)
        os.close(master)
        os.waitpid(pid, 0)
    return times


def printed(server, path):
    """Returns a terminal that has printed a file."""
    terminal = server.create(programs.prints(path))
    viewer = server.attach(terminal)
    viewer.send(b"go\r")
    programs.until(viewer, b"END-OF-IT")
    viewer.close()
    return terminal


def attach_times(server, terminal, count, **options):
    """Returns the seconds from connecting to the whole picture, its bytes, and the CPU time of the server for each."""
    times, size = [], 0
    pids = server.pids()
    spent = processes.cpu(pids)
    for _ in range(count):
        began = time.perf_counter()
        if server.name == "tmux":
            viewer = TmuxViewer(server.arguments("attach", "-t", terminal), server.environment)
            seen = b""
            while b"END-OF-IT" not in seen:
                seen += viewer.read()
            size = len(seen)
        else:
            viewer = server.attach(terminal, **options)
            size = viewer.socket.received
        times.append(time.perf_counter() - began)
        viewer.close()
    return times, size, (processes.cpu(pids) - spent) / count


def resume_times(server, count):
    """Returns the seconds from connecting with an offset to the end of the missed output, compared byte by byte."""
    loop = "stty -echo; echo READY; while read n; do head -c 4000 /dev/zero | tr '\\0' x; echo =$n=; done"
    terminal = server.create(["sh", "-c", loop])
    steady = server.attach(terminal)
    programs.until(steady, b"READY")
    times, wrong = [], 0
    for number in range(count):
        came_from, seen = steady.offset, b""
        steady.send(b"%d\r" % number)
        while b"=%d=\r\n" % number not in seen:
            seen += steady.read()
        began = time.perf_counter()
        viewer = server.attach(terminal, f"mode=viewer&from={came_from}")
        missed = b""
        while len(missed) < len(seen):
            missed += viewer.read()
        times.append(time.perf_counter() - began)
        wrong += missed != seen
        viewer.close()
    steady.close()
    server.remove(terminal)
    return times, wrong


COUNTER = """import sys, time
number = 0
while True:
    sys.stdout.write("".join(f"{n}\\n" for n in range(number, number + 400)))
    sys.stdout.flush()
    number += 400
    time.sleep(0.004)
"""


def lost_or_doubled(server, files, count, kills):
    """Reconnects during output, sometimes after `kill -9`. Returns the lines that are missing or repeated."""
    path = files.path("counter.py")
    with open(path, "w") as file:
        file.write(COUNTER)
    terminal = server.create(["python3", path])
    viewer = server.attach(terminal)
    rest, expected, wrong, bytes_read = b"", None, 0, 0
    for number in range(count):
        offset = viewer.offset
        viewer.close()
        if kills and number % max(1, count // kills) == count // kills // 2:
            server.kill()
            server.start()
        viewer = server.attach(terminal, f"mode=viewer&from={offset}")
        if viewer.snapshot or viewer.offset != offset:
            wrong += 1
            rest, expected = b"", None
        data = viewer.read()
        bytes_read += len(data)
        lines = (rest + data).split(b"\n")
        rest = lines.pop()
        for line in lines:
            if expected is None:
                # The first picture may end within a line; the next line is whole.
                expected = -1
                continue
            try:
                found = int(line)
            except ValueError:
                found = -2
            if expected >= 0 and found != expected:
                wrong += 1
            expected = found + 1
    viewer.close()
    server.remove(terminal)
    return wrong, bytes_read


def rows_of(count, kills):
    return {
        "lost": Row("2", f"bytes lost or doubled over {count:,} reconnects under output, {kills} of them after `kill -9`", "0"),
        "prompt": Row("7", "create to prompt over the API, p50", "≤ 0.55× tmux", ms),
        "screen": Row("8", "reconnect, one screen, p50", "≤ 1.5 ms", ms),
        "lines": Row("8", "reconnect, 5,000 coloured lines, p50", "≤ 12 ms", ms),
        "bytes": Row("8", "its bytes", "≤ 40 KB", lambda value: f"{value / 1000:,.1f} KB"),
        "cpu": Row("8", "its CPU in the server", "≤ 4 ms", ms),
        "resume": Row("9", "resume by offset, 4 KB missed, p50", "≤ 1 ms, exact", ms),
    }


def measure(server, files, rows, scale):
    name = server.name
    rows["prompt"].put(name, middle(prompt_times(server, scale.prompts)))
    screen = printed(server, files.screen)
    rows["screen"].put(name, middle(attach_times(server, screen, scale.attaches)[0]))
    if name != "tmux":
        options = {"query": "compress=gzip"} if name == "stead" else {}
        long = printed(server, files.lines)
        times, size, spent = attach_times(server, long, scale.long_attaches, **options)
        rows["lines"].put(name, middle(times))
        rows["bytes"].put(name, size)
        rows["cpu"].put(name, spent)
        server.remove(long)
    server.remove(screen)
    if name == "stead":
        times, wrong = resume_times(server, scale.attaches)
        rows["resume"].put(name, middle(times))
        rows["resume"].check(middle(times) <= 1e-3 and wrong == 0)
    else:
        rows["resume"].put(name, "cannot")
        rows["lost"].put(name, "cannot resume")


def judge(rows):
    ours = {key: row.values["stead"] for key, row in rows.items()}
    rows["prompt"].check(ours["prompt"] <= 0.55 * rows["prompt"].values["tmux"])
    rows["screen"].check(ours["screen"] <= 1.5e-3)
    rows["lines"].check(ours["lines"] <= 12e-3)
    rows["bytes"].check(ours["bytes"] <= 40_000)
    rows["cpu"].check(ours["cpu"] <= 4e-3)
