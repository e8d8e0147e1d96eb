"""Minimal HTTP and WebSocket clients that are fast enough for measurements."""

import base64
import json
import os
import select
import socket
import struct

TIMEOUT = 60


class Closed(Exception):
    """The connection was closed by the other end."""


def dial(address):
    connection = socket.create_connection(address, timeout=TIMEOUT)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class Http:
    """A persistent connection."""

    def __init__(self, address, headers=None):
        self.address = address
        self.socket = dial(address)
        self.fixed = "".join(f"{key}: {value}\r\n" for key, value in (headers or {}).items())
        self.buffer = b""

    def request(self, method, path, body=None, headers=""):
        """Returns the status, the headers and the body of the response."""
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.address[0]}:{self.address[1]}\r\n{self.fixed}{headers}"
        if body is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        if poll.poll(0):
            # The server has closed the idle connection.
            self.socket.close()
            self.socket, self.buffer = dial(self.address), b""
        self.socket.sendall(head.encode() + b"\r\n" + data)
        return self.answer()

    def answer(self):
        head = self._until(b"\r\n\r\n").decode("latin-1")
        status = int(head.split(" ", 2)[1])
        headers = {}
        for line in head.split("\r\n")[1:]:
            key, _, value = line.partition(":")
            headers[key.strip().lower()] = value.strip()
        if headers.get("transfer-encoding") == "chunked":
            return status, headers, b"".join(self.chunks())
        length = int(headers.get("content-length", 0))
        return status, headers, self._take(length)

    def chunks(self):
        while True:
            size = int(self._until(b"\r\n"), 16)
            chunk = self._take(size)
            self._take(2)
            if size == 0:
                return
            yield chunk

    def json(self, method, path, body=None):
        status, _, data = self.request(method, path, body)
        if status >= 300:
            raise RuntimeError(f"{method} {path}: {status} {data[:300]!r}")
        return json.loads(data) if data else None

    def pages(self, path):
        """Returns every item of a list."""
        items, cursor = [], ""
        while cursor is not None:
            page = self.json("GET", f"{path}?limit=200{cursor}")
            items += page["items"]
            cursor = page.get("next_cursor") and f"&cursor={page['next_cursor']}"
        return items

    def _fill(self):
        data = self.socket.recv(1 << 18)
        if not data:
            raise Closed
        self.buffer += data

    def _until(self, end):
        while end not in self.buffer:
            self._fill()
        found, _, self.buffer = self.buffer.partition(end)
        return found

    def _take(self, count):
        if count > len(self.buffer):
            parts, have = [self.buffer], len(self.buffer)
            while have < count:
                data = self.socket.recv(1 << 18)
                if not data:
                    raise Closed
                parts.append(data)
                have += len(data)
            self.buffer = b"".join(parts)
        found, self.buffer = self.buffer[:count], self.buffer[count:]
        return found

    def close(self):
        self.socket.close()


class WebSocket:
    """A WebSocket client. `received` counts the bytes on the wire."""

    TEXT, BINARY, CLOSE, PING = 1, 2, 8, 9

    def __init__(self, address, path, headers=None, receive_buffer=None):
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(TIMEOUT)
        self.socket.connect(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        extra = "".join(f"{key}: {value}\r\n" for key, value in (headers or {}).items())
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET {path} HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n{extra}\r\n".encode()
        )
        self.buffer = bytearray()
        self.received = 0
        while b"\r\n\r\n" not in self.buffer:
            self._fill()
        head, _, rest = bytes(self.buffer).partition(b"\r\n\r\n")
        if b" 101 " not in head.split(b"\r\n", 1)[0]:
            raise RuntimeError(f"no WebSocket: {head + rest!r}")
        self.buffer = bytearray(rest)

    def _fill(self):
        data = self.socket.recv(1 << 16)
        if not data:
            raise Closed
        self.received += len(data)
        self.buffer += data

    def send(self, data, kind=BINARY):
        # A mask of zeros is valid and costs nothing.
        size = len(data)
        if size < 126:
            head = struct.pack("!BB", 0x80 | kind, 0x80 | size)
        elif size < 65536:
            head = struct.pack("!BBH", 0x80 | kind, 0x80 | 126, size)
        else:
            head = struct.pack("!BBQ", 0x80 | kind, 0x80 | 127, size)
        self.socket.sendall(head + b"\0\0\0\0" + data)

    def say(self, message):
        self.send(json.dumps(message).encode(), self.TEXT)

    def receive(self):
        """Returns the kind and the bytes of the next message."""
        while True:
            kind, data = self._frame()
            if kind == self.CLOSE:
                raise Closed
            if kind in (self.TEXT, self.BINARY):
                return kind, data
            if kind == self.PING:
                self.send(data, 10)

    def _frame(self):
        buffer = self.buffer
        while len(buffer) < 2:
            self._fill()
        kind, size, at = buffer[0] & 15, buffer[1] & 127, 2
        if size == 126:
            while len(buffer) < 4:
                self._fill()
            size, at = int.from_bytes(buffer[2:4], "big"), 4
        elif size == 127:
            while len(buffer) < 10:
                self._fill()
            size, at = int.from_bytes(buffer[2:10], "big"), 10
        while len(buffer) < at + size:
            self._fill()
        data = bytes(buffer[at : at + size])
        del buffer[: at + size]
        return kind, data

    def close(self):
        try:
            self.send(b"\x03\xe8", self.CLOSE)
        except OSError:
            pass
        self.socket.close()
