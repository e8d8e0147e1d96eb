"""The PTYs of a session and the WebSocket protocol of AgentBay's PTY server.

The output of a PTY is sent to the client that created it or connected to it last; without a client it is dropped.
The vendor documents no more than that.
"""

import base64
import itertools
import json
import threading

from frames import Closed
from supervisor import Ended

MAX_SIZE = 500


class PtyError(Exception):
    """The error message of the PTY server."""


class Ptys:
    """The PTYs of one session. The supervisor reports their events in a thread of its own."""

    def __init__(self, session, harm):
        self.session, self.harm = session, harm
        self.lock = threading.Lock()
        # The client of each PTY, and the output before it connected.
        self.listening, self.early = {}, {}
        self.pushes = itertools.count()

    def on_event(self, event):
        name = event["pty"]
        with self.lock:
            if name not in self.listening:
                self.early.setdefault(name, []).append(event)
                return
            self._push(event)

    def _push(self, event):
        name = event["pty"]
        socket = self.listening[name]
        if "exit_code" in event:
            self.listening.pop(name)
            data = {"eventType": "pty.exit", "exitCode": event["exit_code"]}
        else:
            raw = base64.b64decode(event["output"])
            try:
                data = {"eventType": "pty.output", "encoding": "utf8", "data": raw.decode()}
            except UnicodeDecodeError:
                data = {"eventType": "pty.output", "encoding": "base64", "data": event["output"]}
        if socket:
            head = {"invocationId": f"push-{next(self.pushes)}", "source": "PTY_SERVER", "target": "SDK"}
            socket.send(json.dumps({**head, "data": {**data, "ptySessionId": name}}))

    def serve(self, socket):
        """Serves a client until it disconnects; the PTYs stay."""
        try:
            while True:
                message = json.loads(socket.receive())
                ask = message["data"]
                harm = self.harm(ask["method"]).get("harm")
                try:
                    if harm == "error":
                        raise PtyError("something broke")
                    self.answer(socket, ask["method"], ask.get("params") or {}, message["invocationId"])
                except (PtyError, KeyError, ValueError, TypeError) as error:
                    self.reply(socket, message["invocationId"], {"phase": "error", "error": str(error)})
                if harm == "lose":
                    return
        except (Closed, ValueError, KeyError, TypeError):
            pass
        finally:
            with self.lock:
                for name, listener in self.listening.items():
                    if listener is socket:
                        self.listening[name] = None
            socket.over()
            socket.close()

    def reply(self, socket, invocation, data):
        message = {"invocationId": invocation, "source": "PTY_SERVER", "target": "SDK", "data": data}
        socket.send(json.dumps(message))

    def answer(self, socket, method, params, invocation):
        done = lambda result: self.reply(socket, invocation, {"phase": "end", "result": result})  # noqa: E731
        if method == "pty.create":
            size = {name: self.length(params.get(name, 0)) for name in ("cols", "rows")}
            wish = {"cwd": params.get("cwd"), "env": params.get("envs"), "shell": params.get("shell")}
            made = self.ask(do="pty.create", **size, **wish)
            if "error" in made:
                raise PtyError(made["error"])
            done({"ptySessionId": made["pty"]})
            with self.lock:
                self.listening[made["pty"]] = socket
                for event in self.early.pop(made["pty"], []):
                    self._push(event)
        elif method == "pty.list":
            with self.lock:
                done({"ptySessionIds": sorted(self.listening)})
        else:
            name = params["ptySessionId"]
            with self.lock:
                if name not in self.listening:
                    raise PtyError(f"PTY session {name} not found")
                if method == "pty.connect":
                    self.listening[name] = socket
                    return done({"ptySessionId": name})
            if method == "pty.input":
                raw = params["data"]
                data = raw if params.get("encoding") == "base64" else base64.b64encode(raw.encode()).decode()
                self.ask(do="pty.input", pty=name, data=data)
            elif method == "pty.resize":
                self.ask(do="pty.resize", pty=name, cols=self.length(params["cols"]), rows=self.length(params["rows"]))
            elif method == "pty.kill":
                self.ask(do="pty.kill", pty=name)
                done({})
            else:
                raise PtyError(f"there is no method {method}")

    def ask(self, **question):
        try:
            return self.session.supervisor.ask(**question)
        except Ended:
            raise Closed from None

    @staticmethod
    def length(number):
        if not 0 < int(number) <= MAX_SIZE:
            raise PtyError(f"a size of {number} is not valid")
        return int(number)
