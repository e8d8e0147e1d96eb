"""Sandboxes: time to the first command, memory, and the effect of a busy neighbour."""

import glob
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time

from .report import high, middle, ms
from .stead import Server

# The providers in the order of the columns, if they are available.
PROVIDERS = ("local", "namespace", "docker", "podman")

# Neighbours that use as much as they can. Each ends by itself or after the measurement.
OFFENDERS = {
    "fork bomb": "bash -c 'b() { b | b & }; b' 2>/dev/null; sleep 8",
    "memory bomb": "for i in 1 2 3 4 5 6; do perl -e '$x = \"x\" x (1 << 20); push @a, $x . $_ for 1 .. 9999'; done",
    "disk filler": "for i in 1 2 3 4; do head -c 2G /dev/zero > /tmp/fill; done",
    "yes": "timeout 8 yes",
}
# All of them in one sandbox. The output of parallel commands goes to the terminal, like that of one command.
OFFENDERS["sandbox with all four"] = " & ".join(f"( {one} )" for one in reversed(OFFENDERS.values())) + " & wait"


def server_for(binary, provider, **more):
    settings = {"STEAD_PROVIDER": provider, "STEAD_SANDBOX_WARM": "0", "STEAD_SANDBOX_DISK": "256m"}
    return Server(binary, environment={**settings, **more})


def with_server(server, act):
    server.start()
    try:
        return act(server)
    finally:
        for thread in server.http.json("GET", "/api/threads?limit=1000")["items"]:
            server.http.json("DELETE", f"/api/threads/{thread['thread_id']}")
        server.stop()


def available(binary):
    """Returns the providers that are available on this machine."""

    def ask(server):
        items = server.http.json("GET", "/api/providers")["items"]
        return [name for name in PROVIDERS if any(one["name"] == name and one["available"] for one in items)]

    return with_server(server_for(binary, "local"), ask)


def first_exec(server, count, ready=0):
    """Returns the seconds of the first command of a new thread."""
    times = []
    for number in range(count):
        wait_ready(server, ready)
        began = time.perf_counter()
        server.exec("true", f"first-{number}")
        times.append(time.perf_counter() - began)
        server.http.json("DELETE", f"/api/threads/first-{number}")
    return times


def wait_ready(server, count):
    deadline = time.time() + 30
    while count:
        items = server.http.json("GET", "/api/providers")["items"]
        if any((one.get("ready") or 0) >= count for one in items):
            return
        if time.time() > deadline:
            raise RuntimeError(f"no sandboxes wait: {items}")
        time.sleep(0.02)


def bare_runc(count):
    """Returns the seconds of `runc run` for a program that exits at once, in new namespaces with the files of this
    machine."""
    if not shutil.which("runc"):
        return None
    bundle = tempfile.mkdtemp(prefix="stead-bench-runc-")
    subprocess.run(["runc", "spec"], cwd=bundle, check=True)
    path = os.path.join(bundle, "config.json")
    with open(path) as file:
        spec = json.load(file)
    root = os.path.join(bundle, "root")
    for name in ("usr", "proc", "dev", "sys"):
        os.makedirs(os.path.join(root, name))
    for name in ("bin", "lib", "lib64"):
        if os.path.islink("/" + name):
            os.symlink(os.readlink("/" + name), os.path.join(root, name))
    spec["root"] = {"path": root, "readonly": True}
    spec["process"]["args"] = ["/bin/true"]
    spec["process"]["terminal"] = False
    spec["mounts"] = [mount for mount in spec["mounts"] if mount["type"] != "cgroup"]
    spec["mounts"].append({"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]})
    spec["linux"]["cgroupsPath"] = f"/stead-bench-{os.getpid()}"
    with open(path, "w") as file:
        json.dump(spec, file)
    times = []
    for number in range(count):
        began = time.perf_counter()
        name = f"stead-bench-{os.getpid()}-{number}"
        subprocess.run(["runc", "run", "--bundle", bundle, name], check=True, stdin=subprocess.DEVNULL)
        times.append(time.perf_counter() - began)
    shutil.rmtree(bundle)
    return times


def pauses(server, count):
    server.exec("true", "pause")
    lease = server.http.json("GET", "/api/threads/pause/lease")["lease_id"]
    times = {"pause": [], "resume": []}
    for _ in range(count):
        for word, list_ in times.items():
            began = time.perf_counter()
            server.http.json("POST", f"/api/leases/{lease}/{word}")
            list_.append(time.perf_counter() - began)
    return times


def proportional(pid):
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Pss:"))


def beyond_the_shell(server, count):
    """Returns the KiB of memory per sandbox beyond its shell, with `count` sandboxes."""
    for number in range(count):
        server.exec("true", f"memory-{number}")
    total = 0
    for number in range(count):
        lease = server.http.json("GET", f"/api/threads/memory-{number}/lease")
        instance = lease["instance"]["instance_id"]
        with open(os.path.join(server.home, "sandboxes", instance, "label")) as file:
            name = json.load(file)["name"]
        (procs,) = glob.glob(f"/sys/fs/cgroup/memory/stead-sandboxes/{name}/cgroup.procs") or glob.glob(
            f"/sys/fs/cgroup/stead-sandboxes/{name}/cgroup.procs"
        )
        with open(procs) as file:
            pids = file.read().split()
        for pid in pids:
            with open(f"/proc/{pid}/comm") as file:
                if file.read().strip() != "bash":
                    total += proportional(pid)
    return total / count


def echoes(server, seconds):
    """Returns the seconds from a key to its echo, in a terminal of a separate thread."""
    terminal = server.create(["cat"], "neighbour")
    viewer = server.attach(terminal)
    times, end = [], time.time() + seconds
    while time.time() < end:
        began = time.perf_counter()
        viewer.send(b"x")
        while b"x" not in viewer.read():
            pass
        times.append(time.perf_counter() - began)
        time.sleep(0.005)
    viewer.close()
    server.remove(terminal)
    return times


def neighbours(server, seconds):
    """The p99 of the key echo in seconds, without an offender and beside each offender."""
    echoes(server, 1)
    rows = {"alone": high(echoes(server, seconds))}
    for name, command in OFFENDERS.items():
        body = {"command": command, "timeout_ms": 20_000}
        offender = threading.Thread(target=lambda: Offence(server).run(body))
        offender.start()
        time.sleep(0.5)
        rows[name] = high(echoes(server, seconds))
        offender.join()
    return rows


class Offence:
    def __init__(self, server):
        from .wire import Http

        self.http = Http(server.address, server.headers)

    def run(self, body):
        self.http.json("POST", "/api/threads/offender/exec", body)
        self.http.close()


def measure(binary, scale, say):
    """Returns the results as lines of Markdown."""
    found = available(binary)
    say(f"sandboxes: {', '.join(found)}")
    first, execs = {}, {}
    for provider in found:
        say(f"{provider}: from asking to the first command")

        def act(server):
            server.exec("true", "begin")
            times = first_exec(server, scale.sandboxes)
            server.exec("true", "row")
            round_trips = []
            for _ in range(scale.commands):
                began = time.perf_counter()
                server.exec("true", "row")
                round_trips.append(time.perf_counter() - began)
            return times, round_trips, pauses(server, scale.pauses)

        first[provider], execs[provider], first[provider, "pauses"] = with_server(server_for(binary, provider), act)
    lines = ["| sandboxes | middle | 99 of 100 |", "|---|---|---|"]

    def row(name, times):
        lines.append(f"| {name} | {ms(middle(times))} | {ms(high(times))} |")

    for provider in found:
        row(f"a new thread to its first command: {provider}", first[provider])
    if "namespace" in found:
        say("namespace: from those that wait")
        warm = server_for(binary, "namespace", STEAD_SANDBOX_WARM="2")
        row(
            "the same from sandboxes that wait: namespace (bar 30 ms)",
            with_server(warm, lambda server: first_exec(server, scale.sandboxes, 2)),
        )
        bare = bare_runc(scale.sandboxes)
        if bare:
            row("bare `runc run … true` (bar: namespace at most 1.5 of it)", bare)
            lines.append(f"| namespace ÷ bare `runc` | {middle(first['namespace']) / middle(bare):.2f}× | |")
    for provider in found:
        for word, times in first[provider, "pauses"].items():
            row(f"{word}: {provider}", times)
    for provider in found:
        row(f"a command in a shell that is there: {provider}", execs[provider])
    if "namespace" in found:
        inside, outside = middle(execs["namespace"]), middle(execs["local"])
        lines.append(f"| inside ÷ outside (bar 1.10) | {inside / outside:.2f}× | |")
        say("namespace: memory, neighbours")
        beyond = with_server(
            server_for(binary, "namespace"), lambda server: beyond_the_shell(server, scale.sandboxes)
        )
        lines.append(f"| memory beyond the shell, a sandbox (bar 5 MB) | {beyond / 1024:.1f} MiB | |")
        echo = with_server(
            server_for(binary, "namespace", STEAD_SANDBOX_MEMORY="512m", STEAD_SANDBOX_PROCESSES="256"),
            lambda server: neighbours(server, scale.echo_seconds),
        )
        quiet = echo.pop("alone")
        lines.append(f"| key echo of a neighbour, without an offender | | {ms(quiet)} |")
        for name, value in echo.items():
            lines.append(f"| key echo beside a {name} (bar 2×) | {value / quiet:.2f}× | {ms(value)} |")
    return lines
