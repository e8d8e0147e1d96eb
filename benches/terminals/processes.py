"""Memory, CPU time and descendants of processes, from /proc."""

import os

TICK = os.sysconf("SC_CLK_TCK")


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def pss(pids):
    """Returns the total proportional set size of processes in KiB."""
    total = 0
    for pid in pids:
        for line in read(f"/proc/{pid}/smaps_rollup").splitlines():
            if line.startswith(b"Pss:"):
                total += int(line.split()[1])
    return total


def cpu(pids):
    """Returns the CPU seconds of processes, without those of children that they waited for."""
    total = 0
    for pid in pids:
        fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        if fields:
            total += int(fields[11]) + int(fields[12])
    return total / TICK


def table():
    """Returns all processes: {pid: (parent, name, command line)}."""
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
    """Returns the descendants of processes."""
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
    """Whether a process exists and is not a zombie."""
    fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return bool(fields) and fields[0] not in (b"Z", b"X")
