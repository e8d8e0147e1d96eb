"""The table of results and its rows."""

import datetime
import os
import platform
import statistics


def middle(values):
    return statistics.median(values)


def high(values, part=0.99):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def ms(seconds):
    return f"{seconds * 1e3:.2f} ms"


def us(seconds):
    return f"{seconds * 1e6:.0f} µs"


def kib(value):
    return f"{value:,.0f} KiB" if value < 10_000 else f"{value / 1024:,.1f} MiB"


class Row:
    """One measurement: the value of each subject, and whether Stead meets its limit."""

    def __init__(self, number, measure, bar, show=str):
        self.number, self.measure, self.bar, self.show = number, measure, bar, show
        self.values = {}
        self.holds = None

    def put(self, subject, value):
        self.values[subject] = value

    def check(self, holds):
        self.holds = bool(holds)
        return self

    def cell(self, subject):
        value = self.values.get(subject)
        if value is None:
            return "–"
        return value if isinstance(value, str) else self.show(value)

    def ratio(self, peer):
        """The ratio of our value to that of the peer; smaller is better."""
        ours, theirs = self.values.get("stead"), self.values.get(peer)
        if not isinstance(ours, (int, float)) or not isinstance(theirs, (int, float)) or not theirs:
            return "–"
        return f"{ours / theirs:.2f}×"

    def line(self, subjects):
        verdict = {None: "", True: "holds", False: "**missed**"}[self.holds]
        peers = [subject for subject in subjects if subject != "stead"]
        cells = [self.cell(subject) for subject in subjects] + [self.ratio(peer) for peer in peers]
        return "| " + " | ".join([self.number, self.measure, *cells, self.bar, verdict]) + " |"


def machine():
    model = "unknown processor"
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return f"{os.cpu_count()} cores of {model}, {memory:.0f} GiB, Linux {platform.release()}"


def table(title, subjects, rows):
    peers = [subject for subject in subjects if subject != "stead"]
    heads = ["#", title, *subjects, *[f"÷ {peer}" for peer in peers], "bar", ""]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += [row.line(subjects) for row in rows]
    return "\n".join(lines)


def heading(load):
    now = datetime.datetime.now(datetime.timezone.utc)
    return f"{now:%Y-%m-%d %H:%M} UTC, {machine()}; load average at the start {load[0]:.2f}, at the end {load[1]:.2f}."
