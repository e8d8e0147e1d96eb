"""Processes as /proc shows them: memory, time, descent."""

import os

TICK = os.sysconf("SC_CLK_TCK")


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def pss(pids):
    """Proportional set size of processes together, in KiB."""
    total = 0
    for pid in pids:
        for line in read(f"/proc/{pid}/smaps_rollup").splitlines():
            if line.startswith(b"Pss:"):
                total += int(line.split()[1])
    return total


def cpu(pids):
    """Seconds of processor time used by processes so far, their waited-for children not counted."""
    total = 0
    for pid in pids:
        fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        if fields:
            total += int(fields[11]) + int(fields[12])
    return total / TICK


def table():
    """Every process: {pid: (parent, name, command line)}."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            stat = read(f"/proc/{entry}/stat")
            if stat:
                name = stat[stat.index(b"(") + 1 : stat.rindex(b")")].decode(errors="replace")
                parent = int(stat.rpartition(b")")[2].split()[1])
                found[int(entry)] = (parent, name, read(f"/proc/{entry}/cmdline"))
    return found


def below(roots, processes=None):
    """The descendants of processes."""
    processes = processes or table()
    children = {}
    for pid, (parent, _, _) in processes.items():
        children.setdefault(parent, []).append(pid)
    found, queue = [], list(roots)
    while queue:
        for child in children.get(queue.pop(), []):
            found.append(child)
            queue.append(child)
    return found


def alive(pid):
    """Whether a process is there and not a zombie."""
    fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return bool(fields) and fields[0] not in (b"Z", b"X")
