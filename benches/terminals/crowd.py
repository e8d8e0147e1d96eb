"""Many idle terminals: memory, CPU time, key echo, and the shells that survive a restart of the server."""

import os
import random
import shutil
import signal
import time

from . import processes
from .report import Row, kib, middle, us

ECHOES = 400


def echo(server, terminal, count=ECHOES):
    """Returns the seconds from a key to its echo, for each key."""
    viewer = server.attach(terminal)
    times = []
    for number in range(count + 20):
        # Letters that end no escape sequence, in turn, so that an echo is not taken for an earlier one.
        key = b"vwxyz"[number % 5 :][:1]
        began = time.perf_counter()
        viewer.send(key)
        while key not in viewer.read():
            pass
        if number >= 20:
            times.append(time.perf_counter() - began)
    viewer.close()
    return times


def settle(server, limit=20):
    """The memory after it has stopped falling: a server may release screens that are not in use."""
    pids, release_after = server.pids(), server.release_after
    lowest, since, until = processes.pss(pids), time.monotonic(), time.monotonic() + limit
    while time.monotonic() - since < release_after and time.monotonic() < until:
        time.sleep(0.5)
        now = processes.pss(pids)
        if now < lowest * 0.995:
            since = time.monotonic()
        lowest = min(lowest, now)
    return lowest


def measure(server, count, seconds, rows):
    """Fills the rows on memory, CPU time and echo. The terminals stay open."""
    name = server.name
    # The first terminal is not counted, because it starts what all of them share.
    single = server.create(["cat"])
    server.create()
    rows["echo1"].put(name, middle(echo(server, single)))
    before = settle(server)
    terminals = server.create_many(count)
    after = settle(server, 40)
    rows["idle"].put(name, (after - before) / count)
    pids = server.pids()
    spent, began = processes.cpu(pids), time.monotonic()
    time.sleep(seconds)
    rows["cpu"].put(name, 100 * (processes.cpu(pids) - spent) / (time.monotonic() - began))
    rows["echo"].put(name, middle(echo(server, single)))
    return terminals


def one_host_each(server, count):
    """Returns the KiB per terminal where each has its own host."""
    server.create(thread="first")
    before = settle(server)
    for number in range(count):
        server.create(thread=f"own-{number}")
    after = settle(server, 40)
    return (after - before) / count


def usable(server, terminals):
    """Returns the seconds until each of these terminals has answered a typed line."""
    began = time.perf_counter()
    for terminal in terminals:
        viewer = server.attach(terminal)
        viewer.send(b"echo $((21*2))'!'\r")
        seen = b""
        while b"42!" not in seen:
            seen = seen[-64:] + viewer.read()
        viewer.close()
    return time.perf_counter() - began


def restart(server, terminals, how):
    """Restarts the server. Returns the number of live shells and the seconds until the terminals are usable."""
    shells = set(server.shells())
    binary = None
    if how == "kill":
        server.kill()
    else:
        # Another executable, as in an upgrade.
        binary = os.path.join(server.person, "stead-next")
        shutil.copy(server.binary, binary)
        server.process.send_signal(signal.SIGTERM)
        server.process.wait()
    started = server.start(binary)
    some = random.sample(terminals, min(20, len(terminals)))
    seconds = started + usable(server, some)
    alive = sum(processes.alive(pid) for pid in shells)
    items = server.http.pages("/api/threads/bench/terminals")
    # The default terminal of the thread is listed, too, but it is not one of these.
    wanted = set(terminals)
    live = sum(item["status"] == "live" for item in items if item["terminal_id"] in wanted)
    return alive, len(shells), live, len(wanted), seconds


def survival(server, terminals, rows):
    for key, how in (("kill", "kill"), ("upgrade", "upgrade")):
        alive, shells, live, items, seconds = restart(server, terminals, how)
        rows[key].put("stead", f"{alive:,} of {shells:,}, {seconds * 1e3:.0f} ms")
        rows[key].check(alive == shells and live == items and seconds <= 1.0)


def peer_survival(server, rows):
    """Kills the server of a peer and counts its live shells."""
    shells = set(server.shells())
    server.kill()
    until = time.monotonic() + 5
    while any(map(processes.alive, shells)) and time.monotonic() < until:
        time.sleep(0.05)
    alive = sum(map(processes.alive, shells))
    rows["kill"].put(server.name, f"{alive:,} of {len(shells):,}")


def rows_of(count):
    return {
        "kill": Row("1", f"shells alive after `kill -9` of the server; 20 of {count:,} have answered after", "all, ≤ 1 s"),
        "upgrade": Row("1", "the same after an upgrade of the server", "all, ≤ 1 s"),
        "idle": Row("3", "memory per idle terminal beyond its shell", "≤ 40 KiB", kib),
        "own": Row("3", "the same with one host each", "≤ 220 KiB", kib),
        "cpu": Row("5", f"idle CPU at {count:,} terminals, % of a core", "< 0.5", lambda value: f"{value:.2f}"),
        "echo1": Row("6", "key echo p50 over WebSocket, 1 terminal", "≤ 250 µs", us),
        "echo": Row("6", f"the same among {count:,}", "≤ 300 µs", us),
    }


def judge(rows):
    value = {key: row.values.get("stead") for key, row in rows.items()}
    bars = {"idle": 40, "own": 220, "cpu": 0.5, "echo1": 250e-6, "echo": 300e-6}
    for key, bar in bars.items():
        if value[key] is not None:
            rows[key].check(value[key] <= bar)
