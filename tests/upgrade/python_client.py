"""A program with the Python client of an earlier version, which runs while the server is replaced."""

import pathlib
import subprocess
import sys

from server import Failed, same, wait_for

PLACE = pathlib.Path(__file__).resolve().parent.parent.parent / "target/upgrade/python"
INSTALL_SECONDS = 300
# It follows a command over the upgrade, and then continues in the same shell.
PROGRAM = """\
from stead import Exited, Output, Stead

with Stead.connect() as client:
    shell = client.thread("python")
    shell.exec("value=41")
    wait = "while [ ! -e python-go ]; do sleep 0.1; done"
    for event in shell.exec_stream(f"echo begun; {wait}; echo finished $((value + 1)); (exit 7)"):
        if isinstance(event, Output):
            print(event.text, end="", flush=True)
        elif isinstance(event, Exited):
            print("status", event.result.exit_code)
    print("value", shell.exec("echo $value").stdout.strip())
    print("typed", shell.exec("sort", stdin="b\\na\\n").stdout.split())
    print("new", client.thread("python-new").exec("echo ok; echo no >&2; exit 3").exit_code)
"""
PRINTED = "begun\nfinished 42\nstatus 7\nvalue 41\ntyped ['a', 'b']\nnew 3\n"


def python():
    """Returns a Python with what the client needs, installed once."""
    if not (PLACE / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", PLACE], check=True, timeout=INSTALL_SECONDS)
        install = [PLACE / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "httpx>=0.27,<1"]
        subprocess.run(install, check=True, timeout=INSTALL_SECONDS)
        (PLACE / "ready").touch()
    return PLACE / "bin/python3"


def begin(home, old):
    """Starts the program; returns None if the version has no Python client."""
    source = old.parent / "sdk/python/src"
    if not source.exists():
        print(f"upgrade: {old.parent.name} has no Python client")
        return None
    output = (home.place / "python-output").open("w")
    process = subprocess.Popen([python(), "-c", PROGRAM], env={**home.environment, "PYTHONPATH": str(source)}, cwd=home.work,
                               stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    home.programs.append(process)
    wait_for("command of the Python client", lambda: printed(home) == "begun\n" or process.poll() is not None)
    if process.poll() is not None:
        raise Failed(f"the Python client ended before the upgrade: {printed(home)}")
    return process


def finish(home, process):
    """Lets the program end, and compares what it printed."""
    if process is None:
        return
    same("the Python client during the upgrade", (None, "begun\n"), (process.poll(), printed(home)))
    home.exec("live", "touch ../../python-go")
    wait_for("end of the Python client", lambda: process.poll() is not None)
    same("what the Python client printed", PRINTED, printed(home))


def printed(home):
    return (home.place / "python-output").read_text()
