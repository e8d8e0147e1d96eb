"""Times of the official Python client with this server. Each figure is a median."""

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


def show(what, value, beside=None):
    """Prints a row: the time, the time without Stead, and their ratio."""
    row = f"{what:<44}{value:>10.2f} ms"
    if beside is not None:
        row += f"{beside:>12.2f} ms{value / beside:>9.2f}x"
    print(row, flush=True)


def save(path, data):
    with open(path, "wb") as file:
        file.write(data)


def load(path):
    with open(path, "rb") as file:
        return file.read()


def main():
    print(f"{'':<44}{'stead':>13}{'without it':>15}{'ratio':>10}")
    made = []
    show("create, until it can be used", median(lambda: made.append(Sandbox.create(timeout=600)), 10))
    sandbox = made[0]
    sandbox.commands.run("true")
    beside = median(lambda: subprocess.run(["/bin/bash", "-c", "true"], check=True), 100)
    show("commands.run('true'), beside bash -c true", median(lambda: sandbox.commands.run("true"), 100), beside)
    small, large = b"x" * 1024, os.urandom(100 << 20)
    path = f"/tmp/bench-{os.getpid()}"
    for name, data, times in (("1 KB", small, 100), ("100 MB", large, 3)):
        beside = median(lambda: save(path, data), times)
        show(f"files.write of {name}", median(lambda: sandbox.files.write(path, data), times), beside)
        beside = median(lambda: load(path), times)
        read = median(lambda: sandbox.files.read(path, format="bytes"), times)
        show(f"files.read of {name}", read, beside)
    sandbox.files.remove(path)
    if os.path.exists(path):
        os.remove(path)

    went_well = []

    def one():
        each = Sandbox.create(timeout=600)
        went_well.append(each.commands.run("echo hi").stdout == "hi\n" and each.kill())

    threads = [threading.Thread(target=one) for _ in range(50)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    show("50 at once: create, run, kill", (time.perf_counter() - began) * 1000)
    assert went_well == [True] * 50, went_well
    for each in made:
        each.kill()


if __name__ == "__main__":
    try:
        main()
    finally:
        SERVER.close()
