"""The overhead of our Python client over raw HTTP, for a command that does nothing."""

import asyncio
import http.client
import json
import random
import statistics
import time
import uuid

from server import Server
from stead import AsyncStead, Stead

WARM_UP = 50
SAMPLES = 1000
GOAL_MS = 0.3
THREAD = "bench"


def raw(server):
    """Returns a function that sends the same request over one kept connection."""
    connection = http.client.HTTPConnection(server.address)
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}

    def run():
        body = json.dumps({"command": "true"})
        connection.request("POST", f"/api/threads/{THREAD}/exec", body, {**headers, "Idempotency-Key": uuid.uuid4().hex})
        return json.loads(connection.getresponse().read())

    return run


async def medians(server):
    """Returns the median times in ms of raw HTTP, our client, and our client with asyncio.

    They take turns in random order in one shell, so that the load of the machine affects all alike.
    """
    plain, client, async_client = raw(server), Stead(server.url, server.token), AsyncStead(server.url, server.token)
    shell, async_shell = client.thread(THREAD), async_client.thread(THREAD)
    kinds, order = (0, 1, 2), random.Random(1)
    taken = [[] for _ in kinds]
    for sample in range(WARM_UP + SAMPLES):
        for kind in order.sample(kinds, len(kinds)):
            began = time.perf_counter()
            if kind == 0:
                plain()
            elif kind == 1:
                shell.exec("true")
            else:
                await async_shell.exec("true")
            if sample >= WARM_UP:
                taken[kind].append((time.perf_counter() - began) * 1000)
    client.close()
    await async_client.aclose()
    return [statistics.median(times) for times in taken]


def main():
    server = Server()
    try:
        plain, sync, asynchronous = asyncio.run(medians(server))
        print(f"{'':<44}{'stead-sdk':>13}{'raw HTTP':>15}{'overhead':>13}")
        for name, value in (("exec('true')", sync), ("exec('true'), asyncio", asynchronous)):
            over = value - plain
            note = "" if over <= GOAL_MS else f"  over the goal of {GOAL_MS} ms"
            print(f"{name:<44}{value:>10.2f} ms{plain:>12.2f} ms{over:>10.2f} ms{note}")
    finally:
        server.close()


if __name__ == "__main__":
    main()
