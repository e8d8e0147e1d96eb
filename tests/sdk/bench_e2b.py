"""What the official Python client costs against this server. Each figure is a median."""

import os
import statistics
import subprocess
import threading
import time

from server import Server

SERVER = Server()
os.environ["E2B_API_KEY"] = SERVER.token
os.environ["E2B_API_URL"] = SERVER.url
os.environ["E2B_SANDBOX_URL"] = SERVER.url

from e2b import Sandbox  # noqa: E402  (the client reads the environment)


def median(act, times):
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        act()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1000


def tell(what, value, unit="ms"):
    print(f"{what:<44}{value:>10.1f} {unit}", flush=True)


def main():
    made = []
    tell("create, until it can be used", median(lambda: made.append(Sandbox.create(timeout=600)), 10))
    sandbox = made[0]
    sandbox.commands.run("true")
    tell("commands.run('true')", median(lambda: sandbox.commands.run("true"), 100))
    shell = ["/bin/bash", "-l", "-c", "true"]
    tell("bash -l -c true on this machine", median(lambda: subprocess.run(shell, check=True), 100))
    small, large = b"x" * 1024, os.urandom(100 << 20)
    path = f"/tmp/bench-{os.getpid()}"
    tell("write 1 KB", median(lambda: sandbox.files.write(path, small), 100))
    tell("read 1 KB", median(lambda: sandbox.files.read(path, format="bytes"), 100))
    tell("write 100 MB", median(lambda: sandbox.files.write(path, large), 3))
    tell("read 100 MB", median(lambda: sandbox.files.read(path, format="bytes"), 3))
    sandbox.files.remove(path)

    def one():
        each = Sandbox.create(timeout=600)
        assert each.commands.run("echo hi").stdout == "hi\n"
        each.kill()

    threads = [threading.Thread(target=one) for _ in range(50)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tell("50 at once: create, run, kill", (time.perf_counter() - began) * 1000)
    for each in made:
        each.kill()


if __name__ == "__main__":
    try:
        main()
    finally:
        SERVER.close()
