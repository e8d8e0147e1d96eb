"""Commands: round trip, concurrency and throughput of output."""

import os
import re
import subprocess
import threading
import time

from . import processes
from .flood import Peak
from .report import Row, high, middle, ms
from .wire import Http


def both(times):
    return f"{ms(middle(times))} / {ms(high(times))}"


def timed(count, act):
    times = []
    for _ in range(count):
        began = time.perf_counter()
        act()
        times.append(time.perf_counter() - began)
    return times


def in_a_row(server, count):
    server.exec("true")
    return timed(count, lambda: server.exec("true"))


def at_once(server, threads, count):
    """Calls the shells of several threads at the same time. Returns the seconds of each call and the calls per second."""
    clients = [Http(server.address, server.headers) for _ in range(threads)]
    for number, http in enumerate(clients):
        server.exec("true", f"many-{number}", http)
    times = [[] for _ in clients]

    def work(number, http):
        times[number] = timed(count, lambda: server.exec("true", f"many-{number}", http))

    workers = [threading.Thread(target=work, args=pair) for pair in enumerate(clients)]
    began = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    rate = threads * count / (time.perf_counter() - began)
    for http in clients:
        http.close()
    return [seconds for part in times for seconds in part], rate


def bash_each(count):
    return timed(count, lambda: subprocess.run(["bash", "-c", "true"], check=True))


def tmux_marker(tmux, count):
    """Runs `send-keys`, then polls until the marker appears."""
    terminal = tmux.create()
    number = 0

    def once():
        nonlocal number
        number += 1
        tmux.run("send-keys", "-t", terminal, f"clear; true; echo MARK-$(({number}+0))-$?", "Enter")
        while f"\nMARK-{number}-0" not in "\n" + tmux.run("capture-pane", "-p", "-t", terminal):
            pass

    once()
    times = timed(count, once)
    tmux.remove(terminal)
    return times


def much(server, megabytes):
    """Returns the MB/s of the output of one command, and the largest growth of the memory of the server in KiB."""
    server.exec("true")
    pids = server.pids()
    before = processes.pss(pids)
    size = megabytes * 1_000_000
    with Peak(pids) as peak:
        began = time.perf_counter()
        receipt = server.exec(f"head -c {size} /dev/zero", max_output_bytes=65536)
        seconds = time.perf_counter() - began
    if receipt["stdout_bytes"] != size:
        raise RuntimeError(f"{receipt['stdout_bytes']} of {size} bytes")
    return megabytes / seconds, peak.most - before


UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def in_the_host(root):
    """Runs `cargo bench -p host --bench exec`. Returns its p50 and p99 in seconds, by name."""
    line = ["cargo", "bench", "-q", "-p", "host", "--bench", "exec"]
    output = subprocess.run(line, cwd=root, stdout=subprocess.PIPE, check=True).stdout.decode()
    found = {}
    for name, *figures in re.findall(r"^(.*): p50 ([\d.]+)(\D+), p99 ([\d.]+)(\D+) \(", output, re.M):
        found[name] = (float(figures[0]) * UNITS[figures[1]], float(figures[2]) * UNITS[figures[3]])
    return found


def rows_of(scale):
    return [
        ("host", "exec in the host, 1,000 in a row, p50 / p99", "p50 ≤ 0.3 ms"),
        ("memory", "exec over HTTP, home in memory (no fsync), p50 / p99", "p50 ≤ 2 ms"),
        ("disk", "exec over HTTP, durable on this disk, p50 / p99", "p50 ≤ 6 ms"),
        ("fsync", "one 4 KiB write and fsync on this disk, p50 / p99", ""),
        ("many", f"exec over HTTP, 50 shells × {scale.each}, in memory, p50 / p99 and rate", ""),
        ("many disk", "the same, durable", ""),
        ("bash", "`bash -c true` each time, p50 / p99", ""),
        ("tmux", "tmux `send-keys` and marker, p50 / p99", ""),
        ("much", f"{scale.megabytes} MB of stdout through exec; the server's memory grows by", "≥ 300 MB/s, flat"),
        ("dump", "the whole state of a typical shell, from the host, p50 / p99", "≤ 0.3 ms"),
    ]


def fsync_times(directory, count):
    path = os.path.join(directory, "fsync-probe")
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)

    def once():
        os.write(file, b"x" * 4096)
        os.fdatasync(file)

    times = timed(count, once)
    os.close(file)
    os.unlink(path)
    return times


def table(values):
    lines = ["| 12 | exec | measured | bar | |", "|---|---|---|---|---|"]
    for (measure, bar, text, holds) in values:
        verdict = {None: "", True: "holds", False: "**missed**"}[holds]
        lines.append(f"| | {measure} | {text} | {bar} | {verdict} |")
    return "\n".join(lines)


def measure(make_server, tmux, root, scale):
    """Runs all measurements; `make_server(directory)` starts a server whose home is there."""
    found = {}
    host = in_the_host(root)
    for key, name in (("host", "bash, nothing changes"), ("dump", "bash, its whole state")):
        median, worst = host[name]
        found[key] = (f"{ms(median)} / {ms(worst)}", median <= 0.3e-3)
    for key, directory, bar in (("memory", "/dev/shm", 2e-3), ("disk", None, 6e-3)):
        server = make_server(directory)
        try:
            times = in_a_row(server, scale.commands)
            found[key] = (both(times), middle(times) <= bar)
            times, rate = at_once(server, 50, scale.each)
            many = "many" if key == "memory" else "many disk"
            found[many] = (f"{both(times)}, {rate:,.0f}/s", None)
            if key == "memory":
                rate, grown = much(server, scale.megabytes)
                found["much"] = (f"{rate:,.0f} MB/s, {grown / 1024:.1f} MiB", rate >= 300 and grown <= 8 << 10)
            else:
                found["fsync"] = (both(fsync_times(server.home, 200)), None)
        finally:
            server.stop()
    found["bash"] = (both(bash_each(scale.peer_commands)), None)
    found["tmux"] = (both(tmux_marker(tmux, scale.peer_commands // 4)), None)
    return [(measure, bar, *found[key]) for key, measure, bar in rows_of(scale)]
