"""Large output: the memory of the scrollback, the CPU time of a flood, and viewers that do not read."""

import os
import threading
import time

from . import processes, programs
from .crowd import settle
from .report import Row, kib, middle


def history(server, files, count):
    """Returns the KiB for 5,000 coloured lines in a terminal, with and without a viewer."""
    terminals, viewers = [], []
    for _ in range(count):
        terminals.append(server.create(programs.prints(files.lines)))
    for terminal in terminals:
        viewers.append(server.attach(terminal))
    before = settle(server)
    for viewer in viewers:
        viewer.send(b"go\r")
        programs.until(viewer, b"END-OF-IT")
    time.sleep(3)
    watched = processes.pss(server.pids()) - before
    for viewer in viewers:
        viewer.close()
    unwatched = settle(server, 30) - before
    for terminal in terminals:
        server.remove(terminal)
    return watched / count, unwatched / count


def flood(server, files, megabytes):
    """Returns the CPU seconds of the server while one viewer reads everything."""
    terminal = server.create(programs.prints(files.megabyte, megabytes))
    viewer = server.attach(terminal)
    spent = processes.cpu([*server.pids(), getattr(viewer, "pid", 0)])
    viewer.send(b"go\r")
    programs.until(viewer, b"END-OF-IT")
    spent = processes.cpu([*server.pids(), getattr(viewer, "pid", 0)]) - spent
    viewer.close()
    server.remove(terminal)
    return spent


class Peak:
    """The peak memory of some processes while the context is open."""

    def __init__(self, pids):
        self.pids, self.most, self.over = pids, processes.pss(pids), False
        self.thread = threading.Thread(target=self._watch)

    def _watch(self):
        while not self.over:
            self.most = max(self.most, processes.pss(self.pids))
            time.sleep(0.02)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over = True
        self.thread.join()


def stuck(server, files, megabytes, viewers):
    """Returns the peak KiB above the start and the seconds of the program, with some viewers that never read."""
    done = files.path(f"done-{server.name}-{viewers}-{time.monotonic_ns()}")
    terminal = server.create(programs.prints_then_touches(files.megabyte, megabytes, done))
    driver = server.attach(terminal)
    silent = [server.attach(terminal) for _ in range(viewers)]
    pids = server.pids()
    before = processes.pss(pids)
    with Peak(pids) as peak:
        driver.send(b"go\r")
        programs.until(driver, b"BEGUN")
        # The program sleeps for 0.2 s first, while the connection that started it is closed.
        began = time.perf_counter() + 0.2
        driver.close()
        limit = time.monotonic() + 60
        while not os.path.exists(done) and time.monotonic() < limit:
            time.sleep(0.002)
        seconds = time.perf_counter() - began
        time.sleep(0.3)
    if not os.path.exists(done):
        seconds = float("inf")
    for viewer in silent:
        viewer.close()
    server.remove(terminal)
    return peak.most - before, seconds


def rows_of(megabytes):
    return {
        "watched": Row("4", "memory for 5,000 coloured lines, watched", "≤ 1,500 KiB", kib),
        "unwatched": Row("4", "the same, unwatched", "≤ 300 KiB", kib),
        "cpu": Row("10", f"CPU for {megabytes} MB, emulator and one viewer", f"≤ {1.3 * megabytes / 100:.2f} s", lambda value: f"{value:.2f} s"),
        "stuck": Row("11", "a stuck viewer: memory", "≤ 2 MiB", kib),
        "slowed": Row("11", "a stuck viewer: the program's time, times that without", "≤ 1.1×", lambda value: f"{value:.2f}×"),
    }


def measure(server, files, rows, scale):
    name = server.name
    watched, unwatched = history(server, files, scale.histories)
    rows["watched"].put(name, watched)
    rows["unwatched"].put(name, unwatched)
    rows["cpu"].put(name, flood(server, files, scale.megabytes))
    with_it, without = [], []
    for _ in range(scale.stuck_rounds):
        without.append(stuck(server, files, scale.megabytes // 2, 0))
        with_it.append(stuck(server, files, scale.megabytes // 2, 1))
    memory = [peak for peak, _ in with_it], [peak for peak, _ in without]
    times = [seconds for _, seconds in with_it], [seconds for _, seconds in without]
    rows["stuck"].put(name, max(0, middle(memory[0]) - middle(memory[1])))
    rows["slowed"].put(name, middle(times[0]) / middle(times[1]))


def judge(rows, scale):
    ours = {key: row.values["stead"] for key, row in rows.items()}
    rows["watched"].check(ours["watched"] <= 1500)
    rows["unwatched"].check(ours["unwatched"] <= 300)
    rows["cpu"].check(ours["cpu"] <= 1.3 * scale.megabytes / 100)
    rows["stuck"].check(ours["stuck"] <= 2048)
    rows["slowed"].check(ours["slowed"] <= 1.1)
