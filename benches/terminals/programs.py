"""The programs that run in the terminals, and the files that they print."""

import os
import shutil
import tempfile

LINES = 5000


class Files:
    """A temporary directory with the input files."""

    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="bench-files-")
        self.lines = self._write("lines", coloured(LINES))
        self.screen = self._write("screen", coloured(20))
        self.megabyte = self._write("megabyte", mixed(1_000_000))

    def _write(self, name, data):
        path = os.path.join(self.directory, name)
        with open(path, "wb") as file:
            file.write(data)
        return path

    def path(self, name):
        return os.path.join(self.directory, name)

    def close(self):
        shutil.rmtree(self.directory, ignore_errors=True)


def coloured(count):
    """The output of a build, with colours: 5,000 lines are 420 KB, or 20 KB with gzip. The limit on bytes was set with
    lines that are a little smaller."""
    lines = []
    for number in range(count):
        lines.append(
            f"\x1b[{31 + number % 7}mcompiling\x1b[0m \x1b[1mcrate-{number:04}\x1b[0m v0.4.2 "
            f"(\x1b[36m/src/lib/module-{number % 7}\x1b[0m) in 12 ms\n"
        )
    return "".join(lines).encode()


def mixed(size):
    """The output of a build: mostly plain text, with some colours."""
    pieces, have, number = [], 0, 0
    while have + 100 < size:
        if number % 4 == 0:
            piece = f"\x1b[32m   Compiling\x1b[0m package-{number} v1.{number % 90}.0\n"
        else:
            piece = f"{number:08} the quick brown fox jumps over the lazy dog, line {number * 31 % 9973} of the log\n"
        pieces.append(piece)
        have += len(piece)
        number += 1
    return ("".join(pieces) + "." * (size - have - 1) + "\n").encode()


def prints(path, times=1, marker="END-OF-IT"):
    """A program that waits for a line, prints a file several times and a marker, and waits again."""
    return ["sh", "-c", f"stty -echo; echo READY; read x; cat {' '.join([path] * times)}; echo; echo {marker}; read x; read x"]


def prints_then_touches(path, times, done):
    return ["sh", "-c", f"stty -echo; echo READY; read x; echo BEGUN; sleep 0.2; cat {' '.join([path] * times)}; : > {done}; read x; read x"]


def until(viewer, marker):
    """Reads until the marker is in a picture or in the output after it."""
    step = getattr(viewer, "step", viewer.read)
    picture = getattr(viewer, "snapshot", None) or b""
    tail = picture[-4096:]
    while marker not in tail:
        data = step()
        latest = getattr(viewer, "snapshot", None) or b""
        if latest is not picture:
            picture, tail = latest, latest[-4096:]
            continue
        tail = tail[-64:] + data
