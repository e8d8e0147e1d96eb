#!/usr/bin/env python3
"""A stand-in for AgentBay: its API and the data plane of its sessions, over real processes and files.

    stand_in.py DIRECTORY [--key KEY] [--tls] [--central] [--page N]

It listens on a free local port and prints one line of JSON with its address, and with its certificate if it
has one. It ends when its input ends, and kills every process it started; the caller owns the directory. With
`--central`, sessions have no data plane of their own and everything goes through `CallMcpTool`. A list
returns pages of at most `--page` sessions, even if the client asks for more.

`GET /control` returns the state of the stand-in. `POST /control` changes what no client can: `max_sessions`;
`vanish`, a session to remove at once; `renew`, a session whose token changes; `harms`, faults for the next call
of an action, each `{"action": "…", "harm": "busy" | "throttled" | "error" | "half" | "lose"}` (`callTool` for the
data plane, `ws` for a connection to PTYs, `pty.create` and so on there).
"""

import argparse
import base64
import datetime
import http.server
import json
import os
import secrets
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse
import uuid

import files
import frames
from ptys import Ptys
from supervisor import Ended, Supervisor

# The maximum size of the arguments of a call through the API.
MAX_ARGS_BYTES = 63 << 10
# The vendor's limit for one command, in seconds.
MAX_COMMAND_SECONDS = 50.0
# The maximum size of a request.
MAX_BODY_BYTES = 64 << 20
# Seconds without data after which a connection is closed.
IDLE_TIMEOUT = 120
TOOLS = {"shell": "wuying_shell", "get_metrics": "wuying_system", **dict.fromkeys(files.NAMES, "wuying_filesystem")}


class Problem(Exception):
    """An error response of the vendor."""

    def __init__(self, code, message, status=400):
        super().__init__(message)
        self.code, self.message, self.status = code, message, status


class Session:
    """A session: a directory and its processes."""

    def __init__(self, directory, image, labels, harm):
        self.id = f"s-{uuid.uuid4().hex[:16]}"
        self.image, self.labels = image, labels
        self.token = secrets.token_hex(16)
        self.status = "RUNNING"
        self.refreshed = 0
        # The CPU ticks at the last measurement, and its time.
        self.measured = (0, time.monotonic())
        self.home = os.path.join(directory, self.id)
        os.makedirs(self.home)
        self.ptys = Ptys(self, harm)
        self.supervisor = Supervisor(self.home, self.ptys.on_event)
        self.state_lock = threading.Lock()

    def change(self, passing, done, act):
        """Starts a change of state that completes later."""

        def later():
            with self.state_lock:
                if self.status != passing:
                    return
                try:
                    act()
                except Ended:
                    return
                # The state may have changed again.
                if self.status == passing:
                    self.status = done

        self.status = passing
        threading.Thread(target=later, daemon=True).start()

    def end(self):
        self.supervisor.end()
        shutil.rmtree(self.home, ignore_errors=True)

    def call(self, name, args):
        """Calls a tool. Returns its text and whether it is an error."""
        if self.status != "RUNNING":
            raise Problem("InvalidMcpSession.Status", f"session {self.id} is {self.status}")
        if name == "get_metrics":
            return json.dumps(self.metrics()), False
        if name != "shell":
            try:
                return files.call(name, self.home, args), False
            except files.Refused as error:
                return str(error), True
        if not isinstance(args.get("command"), str):
            return "argument 'command' is missing", True
        limit = min(args.get("timeout_ms", 1000) / 1000, MAX_COMMAND_SECONDS)
        ask = {"command": args["command"], "cwd": args.get("cwd"), "env": args.get("envs"), "timeout": limit}
        ran = self.ask(do="run", **ask)
        if ran["timed_out"]:
            return f"command timed out after {round(limit * 1000)} ms", True
        text = {name: base64.b64decode(ran[name]).decode(errors="replace") for name in ("stdout", "stderr")}
        return json.dumps({**text, "exit_code": ran["exit_code"]}), ran["exit_code"] != 0

    def ask(self, **question):
        try:
            return self.supervisor.ask(**question)
        except Ended:
            raise not_found(self.id) from None

    def state(self):
        """The state of the session, for `GET /control`."""
        return {"status": self.status, "labels": self.labels, "refreshed": self.refreshed, "ptys": sorted(self.ptys.listening)}

    def metrics(self):
        """The resource usage of the session."""
        used, now = self.ask(do="measure"), time.monotonic()
        (before, then), self.measured = self.measured, (used["ticks"], now)
        busy = max(0, used["ticks"] - before) / os.sysconf("SC_CLK_TCK") / max(now - then, 0.01)
        disk = os.statvfs(self.home)
        return {
            "cpu_count": os.cpu_count(),
            "cpu_used_pct": round(100 * busy / os.cpu_count(), 2),
            "mem_total": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
            "mem_used": used["memory"],
            "disk_total": disk.f_blocks * disk.f_frsize,
            "disk_used": sum(files.sizes(self.home)),
            "timestamp": datetime.datetime.now(datetime.timezone.utc).isoformat(),
        }


def not_found(name):
    return Problem("InvalidMcpSession.NotFound", f"session {name} not found")


class Vendor:
    """All sessions. Each action of the API is the method of its name, called with the form."""

    def __init__(self, directory, key, central, page):
        self.directory, self.key, self.central, self.page = directory, key, central, page
        self.url = None
        self.lock = threading.Lock()
        self.sessions, self.contexts = {}, {}
        self.harms, self.max_sessions, self.calls = [], 1000, {}

    def session(self, form):
        name = form.get("SessionId", "")
        with self.lock:
            found = self.sessions.get(name)
        if not found:
            raise not_found(name)
        return found

    def view(self, session):
        data = {"SessionId": session.id, "Success": True, "AppInstanceId": f"a-{session.id}", "ResourceId": f"r-{session.id}"}
        data.update(ResourceUrl=f"{self.url}/r/{session.id}", HttpPort="", NetworkInterfaceIp="", VpcResource=False)
        if not self.central:
            tools = [{"name": name, "server": server} for name, server in TOOLS.items()]
            data.update(LinkUrl=f"{self.url}/link/{session.id}", Token=session.token, ToolList=json.dumps(tools))
            data.update(WsUrl=f"{self.url.replace('http', 'ws', 1)}/ws/{session.id}")
        return data

    def CreateMcpSession(self, form):
        labels = json.loads(form.get("Labels") or "{}")
        with self.lock:
            if len(self.sessions) >= self.max_sessions:
                raise Problem("ExceededQuota.Session", f"the limit of {self.max_sessions} sessions is reached")
            session = Session(self.directory, form.get("ImageId") or "linux_latest", labels, self.harm)
            self.sessions[session.id] = session
        return {"Data": self.view(session)}

    def GetSession(self, form):
        session = self.session(form)
        return {"Data": {**self.view(session), "Status": session.status}}

    GetSessionDetail = GetSession

    def ListSession(self, form):
        wanted = json.loads(form.get("Labels") or "{}")
        with self.lock:
            found = sorted(self.sessions.values(), key=lambda session: session.id)
        found = [it for it in found if wanted.items() <= it.labels.items()]
        for field, name in (("Status", "status"), ("ImageId", "image")):
            if form.get(field):
                found = [it for it in found if getattr(it, name) == form[field]]
        limit = min(int(form.get("MaxResults") or 10), self.page)
        page = [it for it in found if it.id > form.get("NextToken", "")][:limit]
        more = page and page[-1] is not found[-1]
        data = [{"SessionId": it.id, "SessionStatus": it.status, "ImageId": it.image} for it in page]
        return {"Data": data, "TotalCount": len(found), "MaxResults": limit, "NextToken": page[-1].id if more else ""}

    def GetLabel(self, form):
        return {"Data": {"Labels": json.dumps(self.session(form).labels)}}

    def SetLabel(self, form):
        self.session(form).labels = json.loads(form["Labels"])
        return {}

    def PauseSessionAsync(self, form):
        session = self.session(form)
        if session.status not in ("RUNNING", "PAUSING", "PAUSED"):
            raise Problem("InvalidMcpSession.Status", f"session {session.id} is {session.status}")
        if session.status == "RUNNING":
            session.change("PAUSING", "PAUSED", lambda: session.supervisor.ask(do="pause"))
        return {}

    def ResumeSessionAsync(self, form):
        session = self.session(form)
        if session.status not in ("PAUSED", "RESUMING", "RUNNING"):
            raise Problem("InvalidMcpSession.Status", f"session {session.id} is {session.status}")
        if session.status == "PAUSED":
            session.change("RESUMING", "RUNNING", lambda: session.supervisor.ask(do="resume"))
        return {}

    def DeleteSessionAsync(self, form):
        session = self.session(form)
        if session.status != "DELETING":
            session.change("DELETING", "DELETED", lambda: self.vanish(session))
        return {}

    ReleaseMcpSession = DeleteSessionAsync

    def vanish(self, session):
        session.end()
        with self.lock:
            self.sessions.pop(session.id, None)

    def RefreshSessionIdleTime(self, form):
        self.session(form).refreshed += 1
        return {}

    def CallMcpTool(self, form):
        session = self.session(form)
        if len(form["Args"].encode()) > MAX_ARGS_BYTES:
            raise Problem("InvalidParameter.Args", f"the arguments are over {MAX_ARGS_BYTES} bytes")
        return {"Data": self.use(session, form["Name"], json.loads(form["Args"]))}

    def use(self, session, name, args):
        if name not in TOOLS:
            raise Problem("InvalidParameter.Name", f"there is no tool {name}")
        text, is_error = session.call(name, args)
        return {"content": [{"type": "text", "text": text}], "isError": is_error}

    def ListMcpTools(self, _):
        return {"Data": json.dumps([{"name": name, "server": server} for name, server in TOOLS.items()])}

    def GetContext(self, form):
        name, by_id = form.get("Name"), form.get("ContextId")
        with self.lock:
            found = [it for it in self.contexts.values() if it["Name"] == name or it["Id"] == by_id]
            if not found and form.get("AllowCreate", "").lower() == "true":
                found = [{"Id": f"c-{uuid.uuid4().hex[:16]}", "Name": name, "State": "available"}]
                self.contexts[found[0]["Id"]] = found[0]
        if not found:
            raise Problem("InvalidContext.NotFound", f"context {name or by_id} not found")
        return {"Data": found[0]}

    def ListContexts(self, form):
        with self.lock:
            found = sorted(self.contexts.values(), key=lambda it: it["Id"])
        limit = int(form.get("MaxResults") or 10)
        return {"Data": found[:limit], "TotalCount": len(found), "MaxResults": limit, "NextToken": ""}

    def ModifyContext(self, form):
        self.GetContext({"ContextId": form["Id"]})["Data"]["Name"] = form["Name"]
        return {}

    def DeleteContext(self, form):
        with self.lock:
            self.contexts.pop(form["Id"], None)
        return {}

    def harm(self, action):
        """Returns the fault to inject into this call."""
        with self.lock:
            self.calls[action] = self.calls.get(action, 0) + 1
            planned = next((it for it in self.harms if it["action"] == action), None)
            if planned:
                self.harms.remove(planned)
        return planned or {}

    def control(self, body):
        with self.lock:
            self.harms = body.get("harms", self.harms)
            self.max_sessions = body.get("max_sessions", self.max_sessions)
            gone = self.sessions.get(body.get("vanish"))
            if "renew" in body:
                self.sessions[body["renew"]].token = secrets.token_hex(16)
        if gone:
            self.vanish(gone)
        with self.lock:
            sessions = {it.id: it.state() for it in self.sessions.values()}
            return {"sessions": sessions, "harms": self.harms, "calls": self.calls}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_TIMEOUT
    disable_nagle_algorithm = True
    vendor = None

    def setup(self):
        if isinstance(self.request, ssl.SSLSocket):
            self.request.settimeout(IDLE_TIMEOUT)
            self.request.do_handshake()
        super().setup()

    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.path.startswith("/ws/"):
            return self.answer_socket(self.path.removeprefix("/ws/"))
        self.do_POST()

    def answer_socket(self, name):
        """Upgrades to a WebSocket to the PTYs of a session."""
        self.close_connection = True
        harm = self.vendor.harm("ws").get("harm")
        with self.vendor.lock:
            session = self.vendor.sessions.get(name)
        if harm == "error":
            return self.send(500, *problem(Problem("InternalError", "something broke", 500)))
        if not session or session.status != "RUNNING" or self.headers.get("X-Access-Token") != session.token:
            return self.send(403, *problem(Problem("Forbidden", "the token is not valid", 403)))
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", frames.accept(self.headers.get("Sec-WebSocket-Key", "")))
        self.end_headers()
        self.connection.settimeout(None)
        session.ptys.serve(frames.Socket(self.rfile, self.connection))

    def do_POST(self):
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_BODY_BYTES:
            return self.send(413, b"{}")
        body = self.rfile.read(length)
        url = urllib.parse.urlsplit(self.path)
        if url.path == "/control":
            return self.send(200, json.dumps(self.vendor.control(json.loads(body or b"{}"))).encode())
        if url.path.startswith("/link/"):
            return self.answer("callTool", lambda: self.link(url.path.split("/"), json.loads(body)))
        form = dict(urllib.parse.parse_qsl(url.query) + urllib.parse.parse_qsl(body.decode()))
        action = form.get("Action", "")
        self.answer(action, lambda: self.api(action, form))

    def api(self, action, form):
        if form.get("Authorization") != f"Bearer {self.vendor.key}":
            raise Problem("InvalidApiKey", "the API key is not valid", 401)
        # Actions start with a capital letter; other methods cannot be called.
        method = getattr(self.vendor, action, None) if action[:1].isupper() else None
        if not method:
            raise Problem("InvalidAction.NotFound", f"there is no action {action}", 404)
        return {"Code": "ok", "HttpStatusCode": 200, "Success": True, **method(form)}

    def link(self, path, ask):
        session = self.vendor.session({"SessionId": path[2]})
        if path[3:] != ["callTool"] or self.headers.get("X-Access-Token") != session.token:
            raise Problem("Forbidden", "the token is not valid", 403)
        if TOOLS.get(ask["tool"]) != ask["server"]:
            raise Problem("InvalidParameter.Server", f"{ask['server']} has no tool {ask['tool']}")
        result = self.vendor.use(session, ask["tool"], ask["args"])
        reply = {"jsonrpc": "2.0", "id": ask["requestId"], "result": result}
        return {"code": 200, "data": json.dumps(reply), "requestId": ask["requestId"]}

    def answer(self, action, act):
        """Carries out a request, with the fault to inject."""
        harm = self.vendor.harm(action)
        if harm.get("harm") == "busy":
            later = {"Retry-After": str(harm["after"])} if "after" in harm else {}
            return self.send(429, *problem(Problem("Throttling.User", "come again later", 429), later))
        if harm.get("harm") == "throttled":
            return self.send(400, *problem(Problem("Throttling.User", "come again later")))
        if harm.get("harm") == "error":
            return self.send(500, *problem(Problem("InternalError", "something broke", 500)))
        status, headers = 200, {}
        try:
            body = json.dumps({"RequestId": request_id(), **act()}).encode()
        except Problem as error:
            status = error.status
            body, headers = problem(error)
        except (KeyError, ValueError, TypeError) as error:
            status = 400
            body, headers = problem(Problem("InvalidParameter", str(error)))
        if harm.get("harm") == "lose":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.send(status, body, headers, cut=harm.get("harm") == "half")

    def send(self, status, body, headers=None, cut=False):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            # Without this header a client would reuse the connection.
            self.send_header("Connection", "close")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = self.close_connection or cut


def request_id():
    return str(uuid.uuid4()).upper()


def problem(error, headers=None):
    response = {"Code": error.code, "HttpStatusCode": error.status, "Success": False, "Message": error.message}
    return json.dumps({"RequestId": request_id(), **response}).encode(), headers or {}


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        """Ignores clients that disconnect in the middle of a response."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def certificate(directory):
    """A self-signed certificate for this machine's names, and its key."""
    key, cert = (os.path.join(directory, name) for name in ("key.pem", "cert.pem"))
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run([*command, *names, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


def main():
    # Close descriptors that were inherited by accident.
    os.closerange(3, 4096)
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--key", default="akm-test")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--central", action="store_true")
    parser.add_argument("--page", type=int, default=100)
    chosen = parser.parse_args()
    directory = os.path.abspath(chosen.directory)
    vendor = Handler.vendor = Vendor(directory, chosen.key, chosen.central, chosen.page)
    server = Server(("127.0.0.1", 0), Handler)
    listening = {"url": f"http://127.0.0.1:{server.server_port}"}
    if chosen.tls:
        cert, key = certificate(directory)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        # The handshake happens in the thread of the connection, so that it cannot block `accept`.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        listening = {"url": f"https://localhost:{server.server_port}", "certificate": cert}
    vendor.url = listening["url"]
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    print(json.dumps(listening), flush=True)
    # The parent lives as long as our input is open.
    while os.read(0, 4096):
        pass
    server.shutdown()
    with vendor.lock:
        left = list(vendor.sessions.values())
    for session in left:
        session.end()


if __name__ == "__main__":
    main()
