"""E2B's own Python client against this server."""

import datetime
import inspect
import json
import os
import threading
import unittest
import urllib.error
import urllib.request

from server import LISTENER, Server, ask, echo, main, until

SERVER = Server()
os.environ["E2B_API_KEY"] = SERVER.token
os.environ["E2B_API_URL"] = SERVER.url
os.environ["E2B_SANDBOX_URL"] = SERVER.url

import e2b  # noqa: E402  (the client reads the environment)
from e2b import (  # noqa: E402
    CommandExitException,
    NotFoundException,
    Sandbox,
    SandboxQuery,
)

try:
    from e2b import PtySize
except ImportError:
    from e2b.sandbox.commands.command_handle import PtySize


def tearDownModule():
    SERVER.close()


def pause(sandbox):
    """Pauses a sandbox. In older clients the name of the method begins with `beta_`."""
    method = getattr(sandbox, "beta_pause", None) or sandbox.pause
    return method()


class Commands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sandbox = Sandbox.create(timeout=600, metadata={"suite": "commands"}, envs={"FOO": "bar"})

    @classmethod
    def tearDownClass(cls):
        cls.sandbox.kill()

    def test_output_and_exit_code(self):
        result = self.sandbox.commands.run("echo hi; echo $FOO; echo err >&2; pwd")
        self.assertEqual(result.stdout, "hi\nbar\n/home/user\n")
        self.assertEqual(result.stderr, "err\n")
        self.assertEqual(result.exit_code, 0)

    def test_a_failure_is_raised_with_its_output(self):
        with self.assertRaises(CommandExitException) as raised:
            self.sandbox.commands.run("echo out; echo err >&2; exit 3")
        self.assertEqual(raised.exception.exit_code, 3)
        self.assertEqual((raised.exception.stdout, raised.exception.stderr), ("out\n", "err\n"))

    def test_large_and_binary_output(self):
        result = self.sandbox.commands.run("head -c 3000000 /dev/zero | tr '\\0' x; printf 'ä€\\n'")
        self.assertEqual(len(result.stdout), 3_000_003)
        self.assertTrue(result.stdout.endswith("xä€\n"))

    def test_output_is_streamed(self):
        seen = []
        self.sandbox.commands.run(
            "echo one; echo two >&2; echo three",
            on_stdout=lambda data: seen.append(("out", data)),
            on_stderr=lambda data: seen.append(("err", data)),
        )
        joined = lambda name: "".join(data for kind, data in seen if kind == name)  # noqa: E731
        self.assertEqual((joined("out"), joined("err")), ("one\nthree\n", "two\n"))

    def test_directory_environment_and_quotes(self):
        result = self.sandbox.commands.run(
            """echo "$A|it's|$PWD" """, cwd="/tmp", envs={"A": "x 'y' \"z\" $HOME\n2"}
        )
        self.assertEqual(result.stdout, "x 'y' \"z\" $HOME\n2|it's|/tmp\n")
        with self.assertRaises(Exception) as raised:
            self.sandbox.commands.run("true", cwd="/nowhere")
        self.assertIn("does not exist", str(raised.exception))

    def test_a_command_leaves_no_state(self):
        self.sandbox.commands.run("export LEFT=1; cd /; set -e; exec true")
        result = self.sandbox.commands.run('echo "$LEFT"; pwd')
        self.assertEqual(result.stdout, "\n/home/user\n")

    def test_users(self):
        self.assertEqual(self.sandbox.commands.run("echo $HOME", user="root").stdout, "/root\n")
        # E2B's daemon authenticates the user, so that an unknown one is an error of authentication there, too.
        with self.assertRaisesRegex(e2b.AuthenticationException, "invalid username: 'missing-user'"):
            self.sandbox.commands.run("true", user="missing-user")
        with self.assertRaises(e2b.AuthenticationException):
            self.sandbox.files.read("/etc/hostname", user="missing-user")

    def test_a_command_ends_when_its_output_is_closed(self):
        go = f"/tmp/go-{self.sandbox.sandbox_id}"
        wait = f"until [ -e {go} ]; do sleep 0.05; done"
        handle = self.sandbox.commands.run(f"({wait}; echo late; rm {go}) & echo now", background=True)
        for stdout, _, _ in handle:
            self.assertEqual(stdout, "now\n")
            break
        self.sandbox.files.write(go, "")
        self.assertEqual(self.sandbox.commands.connect(handle.pid).wait().stdout, "now\nlate\n")
        # A background process with its own output is not waited for.
        left = self.sandbox.commands.run("sleep 1000 >/dev/null 2>&1 & echo $!").stdout
        self.sandbox.commands.run(f"kill {left}")

    def test_a_timeout_applies_to_background_processes(self):
        left = f"/tmp/left-{self.sandbox.sandbox_id}"
        # Older clients stop listening at the same moment, and raise another error.
        with self.assertRaisesRegex(Exception, "(?i)timeout|timed out|deadline"):
            self.sandbox.commands.run(f"sleep 1000 & echo $! > {left}", timeout=5)
        self.sandbox.commands.run(f"kill $(cat {left}); rm {left}")

    def test_a_command_killed_by_a_signal(self):
        for text, code, error in [
            ("kill -9 $$", -1, "signal: killed"),
            ("kill -TERM $$", -1, "signal: terminated"),
            ("exit 137", 137, "exit status 137"),
        ]:
            with self.assertRaises(CommandExitException) as raised:
                self.sandbox.commands.run(text)
            self.assertEqual((raised.exception.exit_code, raised.exception.error), (code, error))

    def test_input(self):
        handle = self.sandbox.commands.run("cat; echo end", background=True, stdin=True)
        self.sandbox.commands.send_stdin(handle.pid, "abc\n")
        self.sandbox.commands.send_stdin(handle.pid, "def\n")
        if hasattr(self.sandbox.commands, "close_stdin"):
            self.sandbox.commands.close_stdin(handle.pid)
            self.assertEqual(handle.wait().stdout, "abc\ndef\nend\n")
        else:
            self.assertTrue(handle.kill())

    def test_no_input(self):
        self.assertEqual(self.sandbox.commands.run("cat; echo end").stdout, "end\n")

    def test_list_connect_and_kill(self):
        handle = self.sandbox.commands.run("echo begun; sleep 1000", background=True)
        listed = {process.pid: process for process in self.sandbox.commands.list()}
        self.assertIn(handle.pid, listed)
        self.assertEqual(listed[handle.pid].cmd, "/bin/bash")
        self.assertEqual(listed[handle.pid].args, ["-l", "-c", "echo begun; sleep 1000"])
        self.assertEqual(self.sandbox.commands.run(f"kill -0 {handle.pid}").exit_code, 0)
        again = self.sandbox.commands.connect(handle.pid)
        self.assertEqual(again.pid, handle.pid)
        self.assertTrue(self.sandbox.commands.kill(handle.pid))
        for each in (handle, again):
            with self.assertRaises(CommandExitException) as raised:
                each.wait()
            self.assertEqual(raised.exception.exit_code, -1)
            self.assertEqual((raised.exception.stdout, raised.exception.stderr), ("begun\n", ""))
        until(lambda: handle.pid not in [p.pid for p in self.sandbox.commands.list()], "its end")
        self.assertFalse(self.sandbox.commands.kill(handle.pid))
        with self.assertRaises(CommandExitException):
            self.sandbox.commands.run(f"kill -0 {handle.pid}")
        self.assertFalse(self.sandbox.commands.kill(999_999))
        with self.assertRaises(Exception):
            self.sandbox.commands.connect(999_999)

    def test_many_at_once(self):
        handles = [
            self.sandbox.commands.run(f"sleep 0.2; echo {n}", background=True) for n in range(12)
        ]
        self.assertEqual(len({handle.pid for handle in handles}), 12)
        self.assertEqual([handle.wait().stdout for handle in handles], [f"{n}\n" for n in range(12)])

    def test_a_timeout_ends_the_command(self):
        # The timer of an older client may be faster than the response, and raises another error.
        with self.assertRaises(Exception) as raised:
            self.sandbox.commands.run("echo $$ > /tmp/limited; sleep 1000", timeout=1)
        self.assertIn("time", type(raised.exception).__name__.lower())
        number = self.sandbox.files.read("/tmp/limited").strip()
        gone = f"kill -0 {number} 2>/dev/null && echo there || echo gone"
        until(lambda: self.sandbox.commands.run(gone).stdout == "gone\n", "the end of the command")


class Terminals(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sandbox = Sandbox.create(timeout=600)

    @classmethod
    def tearDownClass(cls):
        cls.sandbox.kill()

    def collect(self, handle):
        """Collects the output of a terminal in the background."""
        seen, end = bytearray(), []

        def listen():
            try:
                end.append(handle.wait(on_pty=seen.extend))
            except Exception as error:  # a terminal that does not end by itself
                end.append(error)

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        return seen, end, thread

    def test_a_terminal(self):
        handle = self.sandbox.pty.create(PtySize(rows=24, cols=80), envs={"ABC": "123"})
        seen, end, thread = self.collect(handle)
        self.sandbox.pty.send_stdin(handle.pid, b"echo $ABC-$((1+1)); stty size\n")
        until(lambda: b"123-2" in seen and b"24 80" in seen, "the answer")
        self.sandbox.pty.resize(handle.pid, PtySize(rows=30, cols=100))
        self.sandbox.pty.send_stdin(handle.pid, b"stty size\n")
        until(lambda: b"30 100" in seen, "the new size")
        self.sandbox.pty.send_stdin(handle.pid, b"exit 7\n")
        thread.join(60)
        self.assertIsInstance(end[0], CommandExitException)
        self.assertEqual(end[0].exit_code, 7)

    def test_killing_a_terminal(self):
        handle = self.sandbox.pty.create(PtySize(rows=24, cols=80))
        _, end, thread = self.collect(handle)
        self.assertIn(handle.pid, [process.pid for process in self.sandbox.commands.list()])
        self.assertTrue(self.sandbox.pty.kill(handle.pid))
        thread.join(60)
        self.assertEqual(end[0].exit_code, -1)
        self.assertFalse(self.sandbox.pty.kill(999_999))

    def test_reconnecting_to_a_terminal(self):
        handle = self.sandbox.pty.create(PtySize(rows=24, cols=80))
        self.sandbox.pty.send_stdin(handle.pid, b"X=kept; echo first\n")
        handle.disconnect()
        again = self.sandbox.commands.connect(handle.pid)
        seen, _, thread = self.collect(again)
        self.sandbox.pty.send_stdin(handle.pid, b"echo $X-again; exit\n")
        thread.join(60)
        self.assertIn(b"first", seen)
        self.assertIn(b"kept-again", seen)


class Files(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sandbox = Sandbox.create(timeout=600)
        cls.files = cls.sandbox.files
        cls.root = f"/tmp/files-{os.getpid()}"

    @classmethod
    def tearDownClass(cls):
        cls.files.remove(cls.root)
        cls.sandbox.kill()

    def test_write_and_read(self):
        for name, data in [("a.txt", "hello"), ("empty", ""), ("ä b'\"c.txt", "ä")]:
            path = f"{self.root}/deep/{name}"
            info = self.files.write(path, data)
            self.assertEqual((info.name, info.path), (name, path))
            self.assertEqual(self.files.read(path), data)
        binary = bytes(range(256)) * 5000
        self.files.write(f"{self.root}/binary", binary)
        self.assertEqual(bytes(self.files.read(f"{self.root}/binary", format="bytes")), binary)
        streamed = b"".join(self.files.read(f"{self.root}/binary", format="stream"))
        self.assertEqual(streamed, binary)
        self.files.write(f"{self.root}/binary", "less")
        self.assertEqual(self.files.read(f"{self.root}/binary"), "less")

    def test_commands_and_files_use_the_same_paths(self):
        info = self.files.write("relative.txt", "from a file")
        self.assertEqual(info.path, "/home/user/relative.txt")
        self.assertEqual(self.sandbox.commands.run("cat relative.txt").stdout, "from a file")
        self.sandbox.commands.run("echo from a command > relative.txt")
        self.assertEqual(self.files.read("/home/user/relative.txt"), "from a command\n")
        self.sandbox.commands.run("rm relative.txt")
        self.assertFalse(self.files.exists("relative.txt"))

    def test_several_at_once(self):
        files = [{"path": f"{self.root}/many/{n}", "data": str(n) * n} for n in range(10)]
        write = getattr(self.files, "write_files", self.files.write)
        self.assertEqual([info.path for info in write(files)], [file["path"] for file in files])
        self.assertEqual(self.files.read(f"{self.root}/many/7"), "7" * 7)

    def test_a_large_file(self):
        data = os.urandom(1 << 20) * 20
        self.files.write(f"{self.root}/large", data)
        self.assertEqual(bytes(self.files.read(f"{self.root}/large", format="bytes")), data)

    def test_metadata_of_files(self):
        if "metadata" not in inspect.signature(self.sandbox.files.write).parameters:
            self.skipTest("an older client")
        path = f"{self.root}/noted"
        written = self.sandbox.files.write(path, "x", metadata={"Kind": "a b"})
        self.assertEqual(written.metadata, {"kind": "a b"})
        self.assertEqual(self.sandbox.files.get_info(path).metadata, {"kind": "a b"})
        self.sandbox.files.write(path, "y")
        self.assertFalse(self.sandbox.files.get_info(path).metadata)

    def test_list_info_move_remove(self):
        place = f"{self.root}/place"
        self.assertTrue(self.files.make_dir(f"{place}/sub/below"))
        self.assertFalse(self.files.make_dir(f"{place}/sub"))
        self.files.write(f"{place}/a", "12345")
        self.sandbox.commands.run(f"ln -s a {place}/link; chmod 640 {place}/a")
        names = sorted((entry.name, entry.type.value) for entry in self.files.list(place))
        self.assertEqual(names, [("a", "file"), ("link", "file"), ("sub", "dir")])
        deep = [entry.path for entry in self.files.list(place, depth=3)]
        self.assertIn(f"{place}/sub/below", deep)
        info = self.files.get_info(f"{place}/a")
        self.assertEqual((info.size, info.mode, info.permissions), (5, 0o640, "-rw-r-----"))
        self.assertEqual((info.owner, info.type.value), ("user", "file"))
        self.assertEqual(self.files.get_info(f"{place}/link").symlink_target, f"{place}/a")
        moved = self.files.rename(f"{place}/a", f"{place}/new/b")
        self.assertEqual(moved.path, f"{place}/new/b")
        self.assertTrue(self.files.exists(f"{place}/new/b"))
        self.assertFalse(self.files.exists(f"{place}/a"))
        self.files.remove(place)
        self.assertFalse(self.files.exists(place))
        self.files.remove(place)

    def test_missing_files(self):
        for act in (
            lambda: self.files.read(f"{self.root}/nothing"),
            lambda: self.files.get_info(f"{self.root}/nothing"),
            lambda: self.files.list(f"{self.root}/nothing"),
            lambda: self.files.rename(f"{self.root}/nothing", f"{self.root}/x"),
            lambda: self.files.watch_dir(f"{self.root}/nothing"),
        ):
            with self.assertRaises(NotFoundException):
                act()
        with self.assertRaises(e2b.InvalidArgumentException):
            self.files.list("/etc/hostname")
        with self.assertRaises(e2b.InvalidArgumentException):
            self.files.read("/tmp")

    def test_watching(self):
        place = f"{self.root}/watched"
        self.files.make_dir(place)
        self.files.write(f"{place}/old", "1")
        handle = self.files.watch_dir(place, recursive=True)
        seen = []

        def reported(name, kind):
            seen.extend((event.name, event.type.value) for event in handle.get_new_events())
            return (name, kind) in seen

        self.files.write(f"{place}/old", "2")
        until(lambda: reported("old", "write"), "a write")
        self.assertNotIn(("old", "create"), seen)
        self.files.write(f"{place}/new/file", "1")
        until(lambda: reported("new/file", "create"), "a new file below")
        self.sandbox.commands.run(f"rm {place}/old")
        until(lambda: reported("old", "remove"), "a removal")
        handle.stop()
        with self.assertRaises(Exception):
            handle.get_new_events()

    def test_watching_reports_every_change(self):
        place = f"{self.root}/steps"
        self.files.make_dir(place)
        for recursive, below in ((False, []), (True, [("d/e", "create"), ("d/e/f", "create")])):
            handle = self.files.watch_dir(place, recursive=recursive)
            seen = []

            def reported(name, kind):
                seen.extend((event.name, event.type.value) for event in handle.get_new_events())
                return (name, kind) in seen

            self.sandbox.commands.run(f"cd {place}; touch a; mv a b; chmod 600 b; mkdir -p d/e; touch d/e/f")
            for step in below or [("d", "create")]:
                until(lambda step=step: reported(*step), f"{step}")
            self.sandbox.commands.run(f"cd {place}; mv d g; rm -r g b; touch end")
            until(lambda: reported("end", "create"), "the last event")
            steps = [("a", "create"), ("a", "rename"), ("b", "create"), ("b", "chmod"), ("d", "create"), *below]
            steps += [("d", "rename"), ("g", "create"), ("g", "remove"), ("b", "remove"), ("end", "create")]
            at = -1
            for step in steps:
                self.assertIn(step, seen[at + 1 :], f"{step} after {seen[at]} in {seen}")
                at = seen.index(step, at + 1)
            handle.stop()
            self.files.remove(f"{place}/end")
        with self.assertRaises(NotFoundException):
            self.files.watch_dir(f"{place}/nothing")
        self.files.write(f"{place}/file", "")
        with self.assertRaises(e2b.InvalidArgumentException):
            self.files.watch_dir(f"{place}/file")

    def test_signed_links_need_no_key(self):
        path = f"{self.root}/signed"
        self.files.write(path, "by link")

        def get(url, **headers):
            with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
                return answer.status, answer.read()

        url = self.sandbox.download_url(path)
        self.assertEqual(get(url), (200, b"by link"))
        self.assertEqual(get(url, Range="bytes=3-"), (206, b"link"))
        self.assertEqual(get(self.sandbox.download_url(path, use_signature_expiration=60))[0], 200)
        for wrong in (
            url.replace("signed", "other"),
            url.split("&signature")[0],
            self.sandbox.download_url(path, use_signature_expiration=-60),
        ):
            with self.assertRaises(urllib.error.HTTPError) as raised:
                get(wrong)
            self.assertEqual(raised.exception.code, 401)
            raised.exception.close()
        body = (
            b'--XX\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\nup\r\n--XX--\r\n'
        )
        kind = "multipart/form-data; boundary=XX"
        request = urllib.request.Request(
            self.sandbox.upload_url(path), data=body, headers={"Content-Type": kind}
        )
        urllib.request.urlopen(request).close()
        self.assertEqual(self.files.read(path), "up")


class Lives(unittest.TestCase):
    def test_from_create_to_kill(self):
        sandbox = Sandbox.create(timeout=60, metadata={"who": "me", "odd": "a=b&c"})
        self.assertTrue(sandbox.is_running())
        info = sandbox.get_info()
        self.assertEqual(info.sandbox_id, sandbox.sandbox_id)
        self.assertEqual(info.metadata, {"who": "me", "odd": "a=b&c"})
        self.assertEqual(info.state.value, "running")
        sandbox.set_timeout(600)
        longer = sandbox.get_info().end_at
        self.assertGreater((longer - info.end_at).total_seconds(), 500)
        self.assertGreater(sandbox.get_metrics()[0].mem_total, 0)
        self.assertTrue(sandbox.kill())
        self.assertFalse(sandbox.is_running())
        self.assertFalse(Sandbox.kill(sandbox.sandbox_id))
        with self.assertRaises(Exception):
            sandbox.commands.run("true")
        with self.assertRaises(NotFoundException):
            Sandbox.connect(sandbox.sandbox_id)

    def test_list_in_pages(self):
        made = [Sandbox.create(timeout=600, metadata={"page": "yes"}).sandbox_id for _ in range(3)]
        other = Sandbox.create(timeout=600)
        found = []
        pages = Sandbox.list(query=SandboxQuery(metadata={"page": "yes"}), limit=2)
        while pages.has_next:
            items = pages.next_items()
            self.assertLessEqual(len(items), 2)
            found.extend(item.sandbox_id for item in items)
        self.assertEqual(found, made[::-1])
        for each in made + [other.sandbox_id]:
            self.assertTrue(Sandbox.kill(each))

    def test_the_default_timeout(self):
        sandbox = Sandbox.create()
        info = sandbox.get_info()
        self.assertEqual((info.end_at - info.started_at).total_seconds(), 300)
        sandbox.kill()

    def test_list_by_unusual_metadata_and_in_order(self):
        notes = {"a b": "ä & 100% = c+d"}
        made = [Sandbox.create(timeout=600, metadata=notes).sandbox_id for _ in range(2)]
        listed = lambda **more: [one.sandbox_id for one in Sandbox.list(query=SandboxQuery(metadata=notes), **more).next_items()]  # noqa: E501,E731
        self.assertEqual(listed(), made[::-1])
        if "order" in inspect.signature(Sandbox.list).parameters:
            self.assertEqual(listed(order="asc"), made)
            pages = Sandbox.list(query=SandboxQuery(metadata=notes), order="asc", limit=1)
            self.assertEqual([pages.next_items()[0].sandbox_id for _ in range(2)], made)
            self.assertEqual(pages.next_items() if pages.has_next else [], [])
            other = SandboxQuery(metadata=notes, template="another")
            self.assertEqual(Sandbox.list(query=other).next_items(), [])
        for each in made:
            self.assertTrue(Sandbox.kill(each))

    def test_metrics_have_a_history(self):
        sandbox = Sandbox.create(timeout=600)
        first = sandbox.get_metrics()[0]
        self.assertGreater(first.mem_total, 0)
        until(lambda: len(sandbox.get_metrics()) >= 3, "more than one measurement")
        times = [one.timestamp for one in sandbox.get_metrics()]
        self.assertEqual((times, times[0]), (sorted(times), first.timestamp))
        later = times[-1] + datetime.timedelta(hours=1)
        self.assertEqual(sandbox.get_metrics(start=later), [])
        sandbox.kill()

    @unittest.skipUnless("idempotency_key" in inspect.signature(Sandbox.create).parameters, "an older client")
    def test_an_idempotency_key_creates_one_sandbox(self):
        key = f"key-{os.getpid()}"
        one, same = (Sandbox.create(timeout=600, idempotency_key=key) for _ in range(2))
        self.assertEqual(one.sandbox_id, same.sandbox_id)
        self.assertTrue(one.kill())

    def test_pause_keeps_everything(self):
        sandbox = Sandbox.create(timeout=600)
        handle = sandbox.commands.run(
            "n=0; while :; do n=$((n+1)); echo $n > /tmp/count-$E2B_SANDBOX_ID; sleep 0.05; done",
            background=True,
        )
        handle.disconnect()
        count = f"/tmp/count-{sandbox.sandbox_id}"
        number = lambda: int(sandbox.files.read(count) or 0)  # noqa: E731
        until(lambda: sandbox.files.exists(count) and number() > 2, "the counter to start")
        pause(sandbox)
        self.assertEqual(sandbox.get_info().state.value, "paused")
        self.assertFalse(sandbox.is_running())
        again = Sandbox.connect(sandbox.sandbox_id, timeout=300)
        self.assertEqual(again.get_info().state.value, "running")
        self.assertIn(handle.pid, [process.pid for process in again.commands.list()])
        before = number()
        until(lambda: number() > before, "the counter to continue")
        again.kill()
        self.assertFalse(again.is_running())

    def test_a_kill_ends_open_streams(self):
        sandbox = Sandbox.create(timeout=600)
        handle = sandbox.commands.run("sleep 1000", background=True)
        sandbox.kill()
        with self.assertRaises(Exception):
            handle.wait()

    def test_ports(self):
        sandbox = Sandbox.create(timeout=600)
        sandbox.files.write("listen.py", LISTENER)
        seen = []
        handle = sandbox.commands.run("python3 listen.py", background=True, timeout=0)
        listen = lambda: handle.wait(on_stdout=seen.append)  # noqa: E731
        threading.Thread(target=lambda: self.assertRaises(Exception, listen), daemon=True).start()
        port = int(until(lambda: [text for text in ["".join(seen)] if "\n" in text], "the port")[0])
        host = sandbox.get_host(port)
        self.assertTrue(host.startswith(f"{port}-{sandbox.sandbox_id}."), host)
        headers = {"Authorization": f"Bearer {SERVER.token}", "X-Own": "1"}
        status, answer_headers, body = ask(SERVER, host, "/a?b=c", headers)
        self.assertEqual((status, answer_headers.get("x-inside")), (200, "yes"))
        self.assertNotIn("content-security-policy", answer_headers)
        self.assertTrue(body.startswith("/a?b=c "), body)
        self.assertIn("'x-own'", body)
        self.assertNotIn("authorization", body)
        self.assertEqual(echo(SERVER, host, b"x" * 100_000), b"x" * 100_000)
        status, _, body = ask(SERVER, sandbox.get_host(1), "/")
        self.assertEqual(status, 502)
        self.assertIn("port is not open", body)
        sandbox.kill()
        status, _, body = ask(SERVER, host, "/")
        self.assertEqual(status, 502)
        self.assertIn("was not found", body)

    def test_templates(self):
        request = urllib.request.Request(
            f"{SERVER.url}/templates", headers={"X-API-KEY": SERVER.token}
        )
        with urllib.request.urlopen(request) as answer:
            names = [template["templateID"] for template in json.load(answer)]
        self.assertIn("base", names)
        self.assertIn("local", names)
        if hasattr(e2b, "Template") and hasattr(e2b.Template, "exists"):
            self.assertTrue(e2b.Template.exists("base"))
            self.assertFalse(e2b.Template.exists("nothing-of-that-name"))

    def test_a_sandbox_ends_at_its_timeout(self):
        sandbox = Sandbox.create(timeout=1)
        until(lambda: not sandbox.is_running(), "the end of the sandbox")

    def test_a_wrong_key(self):
        with self.assertRaises(e2b.AuthenticationException):
            Sandbox.create(api_key="wrong", timeout=60)

    def test_parallel_sandboxes(self):
        results = {}

        def one(n):
            sandbox = Sandbox.create(timeout=600, envs={"N": str(n)})
            results[n] = sandbox.commands.run("echo $N").stdout
            sandbox.kill()

        threads = [threading.Thread(target=one, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, {n: f"{n}\n" for n in range(8)})


class Isolated(unittest.TestCase):
    """The same with namespace sandboxes, where this machine has them."""

    def setUp(self):
        request = urllib.request.Request(
            f"{SERVER.url}/api/providers", headers={"Authorization": f"Bearer {SERVER.token}"}
        )
        with urllib.request.urlopen(request) as answer:
            providers = json.load(answer)["items"]
        if not any(one["name"] == "namespace" and one["available"] for one in providers):
            self.skipTest("this machine has no namespace sandboxes")

    def test_from_create_to_kill_in_a_sandbox(self):
        sandbox = Sandbox.create("namespace", timeout=600, envs={"A": "1"})
        self.assertEqual(sandbox.commands.run("echo $A; pwd; id -u").stdout, "1\n/home/user\n0\n")
        self.assertEqual(sandbox.commands.run("whoami; id -gn").stdout, "user\nuser\n")
        self.assertEqual(sandbox.commands.run("python -c 'print(6*7)'").stdout, "42\n")
        sandbox.files.write("a/b.txt", "one\n")
        sandbox.commands.run("echo two >> a/b.txt; mkdir made; touch made/c")
        self.assertEqual(sandbox.files.read("a/b.txt"), "one\ntwo\n")
        self.assertEqual(sandbox.files.get_info("a/b.txt").owner, "user")
        sandbox.files.rename("a/b.txt", "made/d.txt")
        self.assertEqual(sandbox.commands.run("ls made; rm made/d.txt").stdout, "c\nd.txt\n")
        sandbox.files.remove("made")
        self.assertFalse(sandbox.files.exists("made"))
        handle = sandbox.commands.run("sleep 1000", background=True)
        pause(sandbox)
        again = Sandbox.connect(sandbox.sandbox_id)
        self.assertIn(handle.pid, [process.pid for process in again.commands.list()])
        seen = bytearray()
        terminal = again.pty.create(PtySize(rows=24, cols=80))
        again.pty.send_stdin(terminal.pid, b"echo in-$((40+2)); exit\n")
        terminal.wait(on_pty=seen.extend)
        self.assertIn(b"in-42", seen)
        self.assertTrue(again.kill())


    def test_root_and_user_share_one_account(self):
        sandbox = Sandbox.create("namespace", timeout=600)
        self.assertEqual(sandbox.commands.run("whoami", user="root").stdout, "root\n")
        self.assertEqual(sandbox.commands.run("whoami; sudo whoami; sudo -u user whoami").stdout, "user\nroot\nuser\n")
        self.assertEqual(sandbox.commands.run("sudo -E A=1 sh -c 'echo $A $HOME'").stdout, "1 /root\n")
        sandbox.kill()

    @staticmethod
    def reaches(sandbox, address):
        """Returns whether the sandbox can send a packet to an address, which need not exist."""
        send = f"import socket as s; o = s.socket(2, 2); o.connect(('{address}', 9)); o.send(b'x')"
        try:
            return sandbox.commands.run(f'python3 -c "{send}"').exit_code == 0
        except CommandExitException as error:
            if "PermissionError" in error.stderr or "unreachable" in error.stderr:
                return False
            raise

    def test_without_a_network(self):
        sandbox = Sandbox.create("namespace", timeout=600, allow_internet_access=False)
        self.assertFalse(self.reaches(sandbox, "203.0.113.1"))
        self.assertIs(sandbox.get_info().allow_internet_access, False)
        sandbox.kill()

    @unittest.skipUnless(hasattr(e2b, "Volume"), "an older client")
    def test_volumes(self):
        os.environ["E2B_VOLUME_API_URL"] = SERVER.url
        volume = e2b.Volume.create(f"volume-{os.getpid()}")
        self.assertIn(volume.name, [one.name for one in e2b.Volume.list()])
        self.assertEqual(e2b.Volume.connect(volume.volume_id).token, volume.token)
        self.assertEqual(volume.write_file("/a/b.txt", "outside", force=True, mode=0o640).size, 7)
        with self.assertRaises(NotFoundException):
            volume.write_file("/no/b.txt", "x")
        sandbox = Sandbox.create("namespace", timeout=600, volume_mounts={"/mnt/shared": volume})
        run = sandbox.commands.run("cat /mnt/shared/a/b.txt; stat -c ' %u:%g %a' /mnt/shared/a/b.txt")
        self.assertEqual(run.stdout, "outside 0:0 640\n")
        sandbox.commands.run("echo inside > /mnt/shared/new.txt; ln -s /etc/passwd /mnt/shared/link")
        self.assertEqual(volume.read_file("/new.txt"), "inside\n")
        entries = {one.path: str(one.type.value) for one in volume.list("/", depth=2)}
        expected = {"/a": "directory", "/a/b.txt": "file", "/new.txt": "file", "/link": "symlink"}
        self.assertEqual(entries, expected)
        self.assertEqual(volume.get_info("/link").target, "/etc/passwd")
        # A link does not lead out of the volume.
        with self.assertRaises(NotFoundException):
            volume.read_file("/link")
        changed = volume.update_metadata("/a/b.txt", uid=7, gid=8, mode=0o600)
        self.assertEqual((changed.uid, changed.gid, changed.mode), (7, 8, 0o600))
        self.assertEqual(sandbox.commands.run("stat -c %u:%g:%a /mnt/shared/a/b.txt").stdout, "7:8:600\n")
        self.assertEqual(volume.make_dir("/d").type.value, "directory")
        volume.remove("/a")
        self.assertFalse(volume.exists("/a"))
        with self.assertRaises(Exception):
            e2b.Volume.destroy(volume.volume_id)
        sandbox.kill()
        self.assertTrue(e2b.Volume.destroy(volume.volume_id))
        self.assertFalse(e2b.Volume.destroy(volume.volume_id))

    @unittest.skipUnless(hasattr(Sandbox, "update_network"), "an older client")
    def test_rules_for_the_network(self):
        usual = Sandbox.create("namespace", timeout=600)
        open_ = self.reaches(usual, "203.0.113.1")
        usual.kill()
        if not open_:
            self.skipTest("sandboxes reach nothing on this machine")
        everything = "0.0.0.0/0"
        rules = {"allow_out": ["203.0.113.0/25"], "deny_out": [everything]}
        sandbox = Sandbox.create("namespace", timeout=600, network=rules)
        self.assertEqual(sandbox.get_info().network, rules)
        self.assertTrue(self.reaches(sandbox, "203.0.113.1"))
        self.assertFalse(self.reaches(sandbox, "203.0.113.200"))
        runs = sandbox.commands.run("sleep 1000", background=True)
        sandbox.update_network({"deny_out": ["203.0.113.1"]})
        self.assertFalse(self.reaches(sandbox, "203.0.113.1"))
        self.assertTrue(self.reaches(sandbox, "203.0.113.200"))
        self.assertEqual(sandbox.get_info().network, {"deny_out": ["203.0.113.1"]})
        sandbox.update_network({"allow_internet_access": False})
        self.assertFalse(self.reaches(sandbox, "203.0.113.200"))
        sandbox.update_network({})
        self.assertTrue(self.reaches(sandbox, "203.0.113.1"))
        # A rule cannot allow an address that is always forbidden.
        sandbox.update_network({"allow_out": ["10.0.0.1"], "deny_out": ["203.0.113.1"]})
        self.assertFalse(self.reaches(sandbox, "10.0.0.1"))
        self.assertIn(runs.pid, [process.pid for process in sandbox.commands.list()])
        for wrong in ({"allow_out": ["example.com"]}, {"deny_out": ["example.com"]}, {"deny_out": ["1.2.3.4/40"]}):
            with self.assertRaisesRegex(e2b.SandboxException, "^400: "):
                sandbox.update_network(wrong)
            with self.assertRaisesRegex(e2b.SandboxException, "^400: "):
                Sandbox.create("namespace", timeout=600, network=wrong)
        sandbox.kill()
        with self.assertRaises(NotFoundException):
            sandbox.update_network({})

    @unittest.skipUnless("on_resume" in inspect.signature(Sandbox.connect).parameters, "an older client")
    def test_a_pause_without_memory_keeps_files(self):
        sandbox = Sandbox.create("namespace", timeout=600)
        sandbox.files.write("kept", "yes")
        sandbox.commands.run("sleep 1000", background=True)
        self.assertTrue(sandbox.pause(mode="filesystem"))
        self.assertFalse(sandbox.pause(mode="filesystem"))
        self.assertEqual(sandbox.get_info().state.value, "paused")
        self.assertFalse(sandbox.is_running())
        again = Sandbox.connect(sandbox.sandbox_id)
        self.assertEqual((again.files.read("kept"), again.commands.list()), ("yes", []))
        again.commands.run("sleep 1000", background=True)
        again.pause()
        again = Sandbox.connect(sandbox.sandbox_id, on_resume="reboot")
        self.assertEqual((again.files.read("kept"), again.commands.list()), ("yes", []))
        again.kill()

    @unittest.skipUnless(hasattr(Sandbox, "create_snapshot"), "an older client")
    def test_snapshots(self):
        sandbox = Sandbox.create("namespace", timeout=600)
        sandbox.files.write("kept.txt", "before")
        snapshot = sandbox.create_snapshot()
        sandbox.files.write("kept.txt", "after")
        listed = sandbox.list_snapshots()
        self.assertIn(snapshot.snapshot_id, [one.snapshot_id for one in listed.next_items()])
        again = Sandbox.create(snapshot.snapshot_id, timeout=600)
        self.assertEqual(again.files.read("kept.txt"), "before")
        for one in (sandbox, again):
            one.kill()
        self.assertTrue(Sandbox.delete_snapshot(snapshot.snapshot_id))
        self.assertFalse(Sandbox.delete_snapshot(snapshot.snapshot_id))

    @unittest.skipUnless(hasattr(Sandbox, "fork"), "an older client")
    def test_forks_have_the_files_and_change_independently(self):
        sandbox = Sandbox.create("namespace", timeout=600, envs={"KEPT": "yes"}, metadata={"a": "b"})
        sandbox.files.write("mine.txt", "before")
        forks = sandbox.fork(timeout=600, count=2)
        self.assertEqual(len({sandbox.sandbox_id, *(fork.sandbox_id for fork in forks)}), 3)
        forks[0].files.write("mine.txt", "after")
        self.assertEqual(forks[1].files.read("mine.txt"), "before")
        self.assertEqual(sandbox.files.read("mine.txt"), "before")
        output = forks[1].commands.run("echo $KEPT $E2B_SANDBOX_ID").stdout.split()
        self.assertEqual(output, ["yes", forks[1].sandbox_id])
        self.assertEqual(forks[0].get_info().metadata, {"a": "b"})
        for one in (sandbox, *forks):
            self.assertTrue(one.kill())


class Crash(unittest.TestCase):
    def test_the_server_is_killed_while_a_command_streams(self):
        sandbox = Sandbox.create(timeout=600)
        handle = sandbox.commands.run(
            "echo begun; while [ ! -e /tmp/go-$E2B_SANDBOX_ID ]; do sleep 0.05; done; echo ended",
            background=True,
        )
        pty = sandbox.pty.create(PtySize(rows=24, cols=80))
        sandbox.pty.send_stdin(pty.pid, b"X=kept\n")
        pty.disconnect()
        SERVER.kill()
        with self.assertRaises(Exception):
            handle.wait()
        SERVER.start()
        again = Sandbox.connect(sandbox.sandbox_id)
        listed = [process.pid for process in again.commands.list()]
        self.assertIn(handle.pid, listed)
        self.assertIn(pty.pid, listed)
        found = again.commands.connect(handle.pid)
        self.assertEqual(found.pid, handle.pid)
        again.files.write(f"/tmp/go-{sandbox.sandbox_id}", "")
        self.assertEqual(found.wait().stdout, "begun\nended\n")
        # A client that connects after the end gets the output and the exit code.
        self.assertEqual(again.commands.connect(handle.pid).wait().stdout, "begun\nended\n")
        terminal, seen = again.commands.connect(pty.pid), bytearray()
        again.pty.send_stdin(pty.pid, b"echo $X-still; exit\n")
        terminal.wait(on_pty=seen.extend)
        self.assertIn(b"kept-still", seen)
        again.files.remove(f"/tmp/go-{sandbox.sandbox_id}")
        again.kill()


if __name__ == "__main__":
    main()
