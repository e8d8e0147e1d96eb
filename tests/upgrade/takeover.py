"""What the current version must take over from an earlier one.

The command lines use only what both versions have: nouns in the plural, for example.
"""

import json
import os
import signal
import subprocess

import python_client
from server import WAIT_SECONDS, Failed, is_alive, same, wait_for

SHELL = """\
mkdir -p deep/inside; cd deep/inside
export STAGE='two words'; list=(one 'two three'); shopt -s extglob
greet() { echo "hello from $STAGE in ${PWD##*/}, ${#list[@]} ${list[1]}"; }
sleep 100000 & echo "$$ $!"
"""
GREETING = "hello from two words in inside, 2 two three"


def can_run_sandboxes(binary):
    """Whether this machine can run sandboxes."""
    if os.geteuid() != 0:
        return False
    done = subprocess.run([binary, "doctor"], capture_output=True, text=True, check=False)
    return "This machine can run namespace sandboxes." in done.stdout


def take_over(home, old, new, provider):
    """Starts shells by the old version, stops its server, and finds them alive with the new one."""
    home.start(old, provider)
    pids = home.exec("live", SHELL)
    same("a function of the old version", GREETING, home.exec("live", "greet"))

    # A program in the foreground of a second shell, which the screen shows.
    home.exec("screen", "echo ready")
    home.run(old, "send", "-t", "screen", "--enter", "PS1='$ '; clear; cat")
    home.run(old, "send", "-t", "screen", "--enter", "typed before")
    screen = wait_for("screen of the program", lambda: screen_with(home, old, "typed before\ntyped before"))

    # A command in flight, which the old command line waits for during the upgrade.
    home.exec("flight", "count=41; rm -f go")
    wait = "echo begun; while [ ! -e go ]; do sleep 0.1; done; echo $((count + 1)) >result; echo finished $((count + 1)); (exit 7)"
    flight = home.begin(old, "exec", "--thread", "flight", "--", wait)
    wait_for("command in flight", lambda: "while" in home.run(old, "history", "flight", "--json"))

    program = python_client.begin(home, old)
    hosts = live_hosts(home)

    # The new command line works with the old server.
    clients(home, new, "the new command line with the old server")

    if "can take over" not in (report := home.run(new, "upgrade", "--check")):
        raise Failed(f"upgrade --check: {report}")
    # Both ways to end a server: it stops by itself, or it is killed.
    home.stop(signal.SIGTERM if provider == "local" else signal.SIGKILL)
    home.start(new, provider)

    same("the shell and its job", pids, home.exec("live", 'echo "$$ $(jobs -p)"'))
    same("a function of the shell", GREETING, home.exec("live", "greet"))
    same("an option of the shell", "on", home.exec("live", "shopt -q extglob && echo on"))
    same("the hosts", hosts, [pid for pid in hosts if is_alive(pid)])
    same("the screen", screen, home.run(new, "snapshot", "screen").rstrip())
    home.run(new, "send", "-t", "screen", "--enter", "typed after")
    wait_for("answer of the program", lambda: screen_with(home, new, "typed after\ntyped after"))

    # The old command line still waits for its command, and gets its result from the new server.
    if flight.poll() is not None:
        raise Failed(f"the old command line did not wait for its command: {flight.communicate()}")
    home.exec("live", "touch ../../go")
    output, errors = finish(flight)
    same("the command in flight", ("begun\nfinished 42\n", 7), (output, flight.returncode))
    messages = [line for line in errors.splitlines() if "connecting" not in line and "waiting" not in line]
    same("messages of its command line", [], messages)
    python_client.finish(home, program)
    commands = home.run(new, "history", "live")
    if "greet" not in commands:
        raise Failed(f"the history has no command of before: {commands}")

    # Shells that get hosts of the new version continue with the state they had.
    for lease in json.loads(home.run(new, "leases", "ls", "--json")):
        home.run(new, "leases", "destroy", lease["lease_id"])
    same("the state of a shell in a new host", GREETING, home.exec("live", "greet"))
    same("a file of before", "42", home.exec("flight", "cat result"))
    clients(home, old, "the old command line with the new server")
    home.stop()


# The first version here answers 410 to a streamed command that ends before it is followed.
LASTS = "sleep 0.5; "


def clients(home, binary, who):
    """Uses each common verb of a command line of any version."""
    try:
        name = f"by-{'new' if binary == home.ending else 'old'}"
        same("exec", "out", home.run(binary, "exec", "--thread", name, "--", f"{LASTS}echo out; value=1"))
        same("status of a command", 3, home.attempt(binary, "exec", "--thread", name, "--", f"{LASTS}(exit 3)").returncode)
        same("exec --json", 5, json.loads(home.attempt(binary, "exec", "--thread", name, "--json", "--", f"{LASTS}(exit 5)").stdout)["exit_code"])
        same("exec --stream", "1\n2", home.run(binary, "exec", "--thread", name, "--stream", "--", f"{LASTS}seq 2"))
        same("exec --stdin", "in", home.run(binary, "exec", "--thread", name, "--stdin", "--", f"{LASTS}cat", text="in"))
        for verb in (["ls"], ["status"], ["providers"], ["threads", "ls"], ["threads", "show", name], ["leases", "ls"],
                     ["project", "ls"], ["history", name], ["versions", name], ["logs", name],
                     ["snapshot", name], ["record", name], ["resize", name, "100x30"]):
            home.run(binary, *verb)
        home.run(binary, "pause", name)
        home.run(binary, "resume", name)
        same("exec after a pause", "1", home.run(binary, "exec", "--thread", name, "--", f"{LASTS}echo $value"))
        home.run(binary, "threads", "rm", name)
    except Failed as error:
        raise Failed(f"{who}: {error}") from error


def export_is_imported(home, old, new):
    """Exports a project of the old version and imports it into an empty home of the new one."""
    home.start(old, "local")
    project = json.loads(home.run(old, "project", "create", "moved", "--json"))["project_id"]
    for kind in ("hot", "persistent"):
        home.run(old, "memory", "put", "-p", project, "-s", kind, "note", f"remembered {kind}")
    home.run(old, "threads", "create", "worker", "--project", project)
    home.exec("worker", "echo content >file")
    home.exec("worker", SHELL)
    home.run(old, "project", "export", project, "moved.tar")
    home.stop()
    for path in home.path.glob("run/*/host.pid"):
        os.kill(int(path.read_text()), signal.SIGKILL)
    home.path.rename(home.place / "home-of-before")
    home.path.mkdir()
    home.start(new, "local")
    home.run(new, "project", "import", "moved.tar")
    for kind in ("hot", "persistent"):
        same("a memory", f"remembered {kind}", home.run(new, "memory", "get", "-p", project, "-s", kind, "note"))
    same("the state of its shell", GREETING, home.exec("worker", "greet"))
    same("a file", "content", home.exec("worker", "cat ../../file"))
    home.stop()


def screen_with(home, binary, text):
    """Returns the screen of the terminal `screen` if it contains a text."""
    screen = home.run(binary, "snapshot", "screen").rstrip()
    return screen if text in "\n".join(line.rstrip() for line in screen.splitlines()) else None


def live_hosts(home):
    """Returns the processes of this home's hosts."""
    return sorted(int(path.read_text()) for path in home.path.glob("*/inst_*/host.pid"))


def finish(process):
    """Waits for the end of a command line; returns what it printed."""
    try:
        return process.communicate(timeout=WAIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        raise Failed(f"no end of the command in flight: {process.communicate()}") from None
