"""The overhead of our Python client over raw HTTP, for a command that does nothing.

Raw HTTP is `http.client` of the standard library, with the same body and one kept connection. A bare socket, which
sends one text and looks for nothing but the length of the response, shows how much of that is the server.
"""

import asyncio
import http.client
import json
import random
import socket
import statistics
import time
import uuid

from server import Server
from stead import AsyncStead, Stead

WARM_UP = 50
SAMPLES = 1000
GOAL_MS = 0.3
PATH = "/api/threads/bench/exec"


def standard_client(server):
    """Returns a function that sends the request with the standard library."""
    connection = http.client.HTTPConnection(server.address)
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}

    def run():
        body = json.dumps({"command": "true"})
        connection.request("POST", PATH, body, {**headers, "Idempotency-Key": uuid.uuid4().hex})
        return json.loads(connection.getresponse().read())

    return run


def bare_socket(server):
    """Returns a function that sends the request without an HTTP client."""
    host, port = server.address.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: {server.address}\r\nAuthorization: Bearer {server.token}\r\n"
        "Content-Type: application/json\r\nContent-Length: 18\r\nIdempotency-Key: "
    )

    def run():
        connection.sendall(f'{head}{uuid.uuid4().hex}\r\n\r\n{{"command":"true"}}'.encode())
        received = b""
        while True:
            received += connection.recv(65536)
            end = received.find(b"\r\n\r\n") + 4
            length = int(received.partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
            if end > 3 and len(received) == end + length:
                return json.loads(received[end:])

    return run


async def medians(server):
    """Returns the median times in ms of a bare socket, the standard library, our client, and our client with asyncio.

    They take turns in random order in one shell, so that the load of the machine affects all alike.
    """
    client, async_client = Stead(server.url, server.token), AsyncStead(server.url, server.token)
    shell, async_shell = client.thread("bench"), async_client.thread("bench")
    shell.exec("true")
    kinds = [bare_socket(server), standard_client(server), lambda: shell.exec("true"), None]
    order, taken = random.Random(1), [[] for _ in kinds]
    for sample in range(WARM_UP + SAMPLES):
        for kind in order.sample(range(len(kinds)), len(kinds)):
            run = kinds[kind]
            began = time.perf_counter()
            if run is None:
                await async_shell.exec("true")
            else:
                run()
            if sample >= WARM_UP:
                taken[kind].append((time.perf_counter() - began) * 1000)
    client.close()
    await async_client.aclose()
    return [statistics.median(times) for times in taken]


def main():
    server = Server()
    try:
        bare, plain, sync, asynchronous = asyncio.run(medians(server))
        print(f"{'':<44}{'stead-sdk':>13}{'http.client':>15}{'overhead':>13}")
        for name, value in (("exec('true')", sync), ("exec('true'), asyncio", asynchronous)):
            over = value - plain
            note = "" if over <= GOAL_MS else f"  over the goal of {GOAL_MS} ms"
            print(f"{name:<44}{value:>10.2f} ms{plain:>12.2f} ms{over:>10.2f} ms{note}")
        print(f"{'the same with a bare socket':<44}{bare:>10.2f} ms{plain:>12.2f} ms{bare - plain:>10.2f} ms")
    finally:
        server.close()


if __name__ == "__main__":
    main()
