"""A minimal WebSocket server: whole text messages both ways, no extensions."""

import base64
import hashlib
import queue
import struct
import threading

MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, CLOSE, PING, PONG = 1, 8, 9, 10
# The maximum size of a message.
MAX_MESSAGE_BYTES = 1 << 20
# The maximum number of queued messages; a client that does not read them is disconnected.
MAX_QUEUED_MESSAGES = 4096


class Closed(Exception):
    """The connection is closed."""


def accept(key):
    """The headers that complete a WebSocket handshake."""
    return base64.b64encode(hashlib.sha1(key.encode() + MAGIC).digest()).decode()


class Socket:
    """One connection. Any thread may send; one reads."""

    def __init__(self, reader, connection):
        self.reader, self.connection = reader, connection
        self.waiting = queue.Queue(MAX_QUEUED_MESSAGES)
        threading.Thread(target=self._write, daemon=True).start()

    def send(self, text):
        self._queue(TEXT, text.encode())

    def close(self):
        """Closes the connection at once."""
        try:
            self.connection.shutdown(2)
        except OSError:
            pass

    def over(self):
        """Sends the queued messages, then closes the connection."""
        self._queue(None, b"")

    def _queue(self, kind, data):
        try:
            self.waiting.put_nowait((kind, data))
        except queue.Full:
            self.close()

    def _write(self):
        while True:
            kind, data = self.waiting.get()
            if kind is None:
                return
            length = len(data)
            head = bytes([0x80 | kind])
            if length < 126:
                head += bytes([length])
            elif length < 65536:
                head += struct.pack("!BH", 126, length)
            else:
                head += struct.pack("!BQ", 127, length)
            try:
                self.connection.sendall(head + data)
            except OSError:
                return self.close()

    def receive(self):
        """Waits for the next message."""
        whole = b""
        while True:
            last, kind, data = self._frame()
            if kind == PING:
                self._queue(PONG, data)
            elif kind == CLOSE:
                self._queue(CLOSE, data[:2])
                raise Closed
            elif kind != PONG:
                whole += data
                if len(whole) > MAX_MESSAGE_BYTES:
                    raise Closed
                if last:
                    return whole.decode()

    def _frame(self):
        first, second = self._exactly(2)
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack("!H", self._exactly(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", self._exactly(8))
        if length > MAX_MESSAGE_BYTES or not second & 0x80:
            raise Closed
        mask = self._exactly(4)
        data = self._exactly(length)
        keys = (mask * (length // 4 + 1))[:length]
        data = (int.from_bytes(data, "big") ^ int.from_bytes(keys, "big")).to_bytes(length, "big")
        return bool(first & 0x80), first & 0x0F, data

    def _exactly(self, count):
        try:
            data = self.reader.read(count)
        except OSError:
            raise Closed from None
        if len(data) < count:
            raise Closed
        return data
