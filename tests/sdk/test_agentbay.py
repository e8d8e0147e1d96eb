"""AgentBay's own Python client against the stand-in that our provider is tested with.

This checks the stand-in: it must behave as the client expects of the vendor.
"""

import base64
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import unittest
import urllib.request

from server import DEADLINE, main, until

STAND_IN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "agentbay", "stand_in.py")
KEY = "akm-of-a-test"


class StandIn:
    """The stand-in, a process that ends with this one."""

    def __init__(self, *options):
        self.directory = tempfile.mkdtemp(prefix="stead-agentbay-")
        command = [sys.executable, STAND_IN, self.directory, "--key", KEY, *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        address = json.loads(self.process.stdout.readline())
        self.url, self.certificate = address["url"], address.get("certificate")

    def control(self, **changes):
        """Changes and returns the state of the stand-in."""
        context = ssl.create_default_context(cafile=self.certificate)
        body = json.dumps(changes).encode()
        request = urllib.request.Request(f"{self.url}/control", data=body)
        with urllib.request.urlopen(request, timeout=DEADLINE, context=context) as answer:
            return json.loads(answer.read())

    def close(self):
        self.process.stdin.close()
        self.process.wait(DEADLINE)
        self.process.stdout.close()
        left = os.listdir(self.directory)
        shutil.rmtree(self.directory)
        return [name for name in left if not name.endswith(".pem")]


def client(stand_in):
    """Returns a client of a stand-in. It reads the address and the certificate from the environment."""
    os.environ["AGENTBAY_ENDPOINT"] = stand_in.url.removeprefix("https://")
    os.environ["SSL_CERT_FILE"] = os.environ["REQUESTS_CA_BUNDLE"] = stand_in.certificate
    return AgentBay(api_key=KEY)


# The client writes a log, by default to the current directory.
LOGS = tempfile.TemporaryDirectory(prefix="stead-agentbay-")
os.environ.update(AGENTBAY_LOG_LEVEL="CRITICAL", AGENTBAY_LOG_FILE=os.path.join(LOGS.name, "log"))
os.environ.pop("AGENTBAY_REGION_ID", None)

from agentbay import AgentBay, CreateSessionParams  # noqa: E402  (the client reads the environment)


def start_time(pid):
    """Returns the start time of a process, or `None`. Together with the pid it identifies the process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[19]
    except OSError:
        return None


class Plane:
    """Tests of one session, over the data plane that `options` select."""

    options = ()

    @classmethod
    def setUpClass(cls):
        cls.stand_in = StandIn("--tls", *cls.options)
        cls.bay = client(cls.stand_in)
        made = cls.bay.create(CreateSessionParams(labels={"suite": cls.__name__}))
        assert made.success, made.error_message
        cls.session = made.session

    @classmethod
    def tearDownClass(cls):
        deleted = cls.bay.delete(cls.session)
        assert deleted.success, deleted.error_message
        left = cls.stand_in.close()
        assert left == [], left

    def run_in(self, command, **options):
        ran = self.session.command.execute_command(command, **options)
        return ran.exit_code, ran.stdout, ran.stderr

    def test_commands(self):
        self.assertEqual(self.run_in("echo hi; echo it\\'s >&2; exit 3"), (3, "hi\n", "it's\n"))
        ran = self.run_in("pwd; echo $A", cwd="/usr", envs={"A": "a b"})
        self.assertEqual(ran, (0, "/usr\na b\n", ""))
        self.assertEqual(self.run_in("head -c 200000 /dev/zero | tr '\\0' x | wc -c"), (0, "200000\n", ""))
        self.assertEqual(self.run_in("kill -9 $$")[0], 137)
        self.assertEqual(self.run_in("env | grep -c akm- ; true"), (0, "0\n", ""))

    def test_a_command_ends_at_its_timeout_and_detached_processes_keep_running(self):
        apart = "setsid sh -c 'echo $$ >apart; sleep 1000' >/dev/null 2>&1 & until [ -s apart ]; do sleep 0.02; done"
        late = self.session.command.execute_command(f"{apart}; echo $$ >own; exec sleep 1000", timeout_ms=3000)
        self.assertFalse(late.success)
        self.assertIn("timed out", late.error_message)
        # On a very slow machine the command was ended before it wrote the file.
        self.assertEqual(self.run_in("! [ -s own ] || ! kill -0 $(cat own)")[0], 0)
        self.assertEqual(self.run_in("until [ -s apart ]; do sleep 0.02; done; kill -9 $(cat apart)")[0], 0)

    def test_files(self):
        files = self.session.file_system
        self.assertTrue(files.create_directory("dir/deep").success)
        text = "a line of \u00e4\u4e16 and more\n" * 6000
        self.assertTrue(files.write_file("dir/text", text).success)
        self.assertEqual(self.run_in("wc -c <dir/text"), (0, f"{len(text.encode())}\n", ""))
        self.assertTrue(files.write_file("dir/small", "one\n").success)
        self.assertTrue(files.write_file("dir/small", "two\n", mode="append").success)
        self.assertEqual(files.read_file("dir/small").content, "one\ntwo\n")
        data = bytes(range(256)) * 300
        sent = base64.b64encode(data).decode()
        self.assertTrue(files.write_file("dir/sent", sent).success)
        self.assertEqual(self.run_in("base64 -d <dir/sent >dir/bytes")[0], 0)
        self.assertEqual(files.read_file("dir/bytes", format="bytes").content, data)
        info = files.get_file_info("dir/bytes").file_info
        self.assertEqual((info["size"], info["isDirectory"]), (len(data), False))
        listed = {entry.name: entry.is_directory for entry in files.list_directory("dir").entries}
        self.assertEqual(listed, {"deep": True, "text": False, "small": False, "sent": False, "bytes": False})
        self.assertTrue(files.edit_file("dir/small", [{"oldText": "two", "newText": "three"}]).success)
        self.assertTrue(files.move_file("dir/small", "dir/deep/moved").success)
        several = files.read_multiple_files(["dir/deep/moved"]).contents
        self.assertEqual(several, {"dir/deep/moved": "one\nthree"})
        found = [os.path.basename(path) for path in files.search_files("dir", "moved").matches]
        self.assertEqual(found, ["moved"])
        missing = files.read_file("dir/nowhere")
        self.assertEqual((missing.success, "No such file" in missing.error_message), (False, True))

    def test_metrics(self):
        answer = self.session.get_metrics()
        self.assertTrue(answer.success, answer.error_message)
        self.assertEqual(answer.metrics.cpu_count, os.cpu_count())
        self.assertLess(0, answer.metrics.mem_used)
        self.assertLess(answer.metrics.mem_used, answer.metrics.mem_total)
        before = answer.metrics.disk_used
        self.run_in("head -c 1000000 /dev/urandom >large; sync large")
        self.assertLess(before + 900000, self.session.get_metrics().metrics.disk_used)
        self.run_in("rm large")

    def test_a_pause_stops_all_processes_and_a_resume_continues_them(self):
        self.run_in("setsid sh -c 'while :; do echo x >>ticks; sleep 0.02; done' >/dev/null 2>&1 & echo $! >ticker")
        home = os.path.join(self.stand_in.directory, self.session.session_id)
        ticks = lambda: os.path.getsize(os.path.join(home, "ticks"))  # noqa: E731
        until(lambda: os.path.exists(os.path.join(home, "ticks")), "the first tick")
        paused = self.session.beta_pause(poll_interval=0.05)
        self.assertEqual((paused.success, paused.status), (True, "PAUSED"), paused.error_message)
        before = ticks()
        refused = self.session.command.execute_command("true")
        self.assertFalse(refused.success)
        listed = self.bay.list(status="PAUSED").session_ids
        self.assertEqual([it["sessionId"] for it in listed], [self.session.session_id])
        self.assertEqual(ticks(), before)
        resumed = self.session.beta_resume(poll_interval=0.05)
        self.assertEqual((resumed.success, resumed.status), (True, "RUNNING"), resumed.error_message)
        until(lambda: ticks() > before, "the next tick")
        self.assertEqual(self.run_in("kill -9 $(cat ticker)")[0], 0)


class Output:
    """The output of a PTY so far."""

    def __init__(self):
        self.data = b""

    def __call__(self, data):
        self.data += data

    def until(self, text):
        until(lambda: text in self.data, f"{text} on {self.data}")


class Direct(Plane, unittest.TestCase):
    """Over the data plane of the session."""

    def setUp(self):
        if "pty" in self._testMethodName and not hasattr(self.session, "pty"):
            self.skipTest("this version has no PTYs")

    def test_a_pty_is_a_terminal(self):
        output = Output()
        handle = self.session.pty.create(cols=91, rows=33, cwd="/usr", envs={"A": "a b"}, shell="/bin/sh", on_data=output)
        handle.send_input(b"test -t 0 && stty size && pwd && echo \"<$A>\"\n")
        output.until(b"33 91\r\n/usr\r\n<a b>\r\n")
        handle.resize(100, 40)
        handle.send_input(b"stty size; printf '\\377'; echo\n")
        output.until(b"40 100\r\n\xff\r\n")
        # Ctrl-C interrupts the foreground process only.
        handle.send_input(b"echo wai''ting; sleep 1000; echo code=$?\n")
        output.until(b"waiting\r\n")
        handle.send_input(b"\x03")
        handle.send_input(b"echo un''hurt\n")
        output.until(b"unhurt\r\n")
        self.assertIn(handle.pty_session_id, [it.pty_session_id for it in self.session.pty.list()])
        handle.send_input(b"exit 7\n")
        self.assertEqual(handle.wait(timeout_s=DEADLINE), 7)
        self.assertNotIn(handle.pty_session_id, [it.pty_session_id for it in self.session.pty.list()])

    def test_another_client_connects_to_a_pty_and_kills_it(self):
        first, second = Output(), Output()
        handle = self.session.pty.create(on_data=first)
        handle.send_input(b"kept=yes; echo up''here\n")
        first.until(b"uphere\r\n")
        again = self.bay.get(self.session.session_id).session
        other = again.pty.connect(handle.pty_session_id, on_data=second)
        other.send_input(b"echo $kept''here\n")
        second.until(b"yeshere\r\n")
        self.assertNotIn(b"yeshere\r\n", first.data)
        other.kill()
        self.assertEqual(other.wait(timeout_s=DEADLINE), 137)
        with self.assertRaises(Exception):
            again.pty.connect(handle.pty_session_id)

    def test_calls_use_this_plane(self):
        self.run_in("true")
        calls = self.stand_in.control()["calls"]
        self.assertGreater(calls["callTool"], 0)
        self.assertNotIn("CallMcpTool", calls)


class Central(Plane, unittest.TestCase):
    """Over the central plane, which accepts less data per call."""

    options = ("--central",)

    def test_calls_use_this_plane(self):
        self.run_in("true")
        calls = self.stand_in.control()["calls"]
        self.assertGreater(calls["CallMcpTool"], 0)
        self.assertNotIn("callTool", calls)

    def test_arguments_over_the_limit_are_refused(self):
        self.assertIn("over 64512 bytes", self.session.command.execute_command("#" * 70000).error_message)


class Sessions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stand_in = StandIn("--tls")
        cls.bay = client(cls.stand_in)

    @classmethod
    def tearDownClass(cls):
        left = cls.stand_in.close()
        assert left == [], left

    def create(self, **options):
        made = self.bay.create(CreateSessionParams(**options))
        self.assertTrue(made.success, made.error_message)
        self.addCleanup(self.bay.delete, made.session)
        return made.session

    def listed(self, **options):
        return [it["sessionId"] for it in self.bay.list(**options).session_ids]

    def test_sessions_are_found_by_their_labels_page_by_page(self):
        all_of = sorted(self.create(labels={"of": "pages", "n": str(n)}).session_id for n in range(5))
        pages = [self.listed(labels={"of": "pages"}, limit=2, page=page) for page in (1, 2, 3)]
        self.assertEqual(pages, [all_of[:2], all_of[2:4], all_of[4:]])
        self.assertFalse(self.bay.list(labels={"of": "pages"}, limit=2, page=4).success)
        self.assertEqual(self.bay.list(labels={"of": "pages"}).total_count, 5)
        self.assertEqual(self.listed(labels={"of": "nothing"}), [])

    def test_labels_are_changed(self):
        session = self.create(labels={"of": "labels"})
        self.assertEqual(session.get_labels().data, {"of": "labels"})
        self.assertTrue(session.set_labels({"of": "others", "b": "2"}).success)
        self.assertEqual(session.get_labels().data, {"of": "others", "b": "2"})
        self.assertEqual(self.listed(labels={"of": "others"}), [session.session_id])

    def test_a_session_is_found_by_its_id_and_is_gone_when_deleted(self):
        session = self.create()
        again = self.bay.get(session.session_id).session
        self.assertTrue(again.command.execute_command("echo kept >file").success)
        self.assertEqual(session.command.execute_command("cat file").stdout, "kept\n")
        self.assertEqual(again.get_status().status, "RUNNING")
        self.assertTrue(again.keep_alive().success)
        self.assertEqual(self.stand_in.control()["sessions"][session.session_id]["refreshed"], 1)
        self.assertTrue(self.bay.delete(again).success)
        gone = self.bay.get(session.session_id)
        self.assertEqual((gone.success, "not found" in gone.error_message), (False, True))
        self.assertFalse(session.command.execute_command("true").success)

    def test_all_processes_of_a_deleted_session_end(self):
        session = self.create()
        # One process ignores signals, the other is an orphan; each leads a session.
        command = (
            "setsid sh -c 'trap \"\" HUP TERM; echo $$ >one; while :; do sleep 1; done' >/dev/null 2>&1 &"
            " (setsid sh -c 'echo $$ >two; exec sleep 1000' >/dev/null 2>&1 &);"
            " until [ -s one ] && [ -s two ]; do sleep 0.02; done; cat one two"
        )
        ran = session.command.execute_command(command)
        pids = [int(line) for line in ran.stdout.split()]
        self.assertEqual(len(pids), 2, ran.error_message)
        started_at = {pid: start_time(pid) for pid in pids}
        self.assertTrue(self.bay.delete(session).success)
        self.assertEqual([pid for pid in pids if start_time(pid) == started_at[pid]], [])

    def test_contexts(self):
        context = self.bay.context.create("things").context
        self.assertEqual(self.bay.context.get("things").context.id, context.id)
        context.name = "others"
        self.assertTrue(self.bay.context.update(context).success)
        self.assertEqual([it.name for it in self.bay.context.list().contexts], ["others"])
        self.assertTrue(self.bay.context.delete(context).success)
        self.assertEqual(self.bay.context.list().contexts, [])

    def test_a_wrong_key_is_refused(self):
        refused = AgentBay(api_key="akm-other").create()
        self.assertEqual((refused.success, "not valid" in refused.error_message), (False, True))


class Faults(unittest.TestCase):
    """Injected faults, with a stand-in for each test, so that other tests do not meet them."""

    def setUp(self):
        self.stand_in = StandIn("--tls")
        self.addCleanup(self.stand_in.close)
        self.bay = client(self.stand_in)

    def sessions(self):
        return list(self.stand_in.control()["sessions"])

    def test_a_refused_create_creates_nothing(self):
        for harm, words in (("busy", "come again later"), ("error", "something broke")):
            self.stand_in.control(harms=[{"action": "CreateMcpSession", "harm": harm, "after": 1}] * 10)
            made = self.bay.create()
            self.assertEqual((made.success, words in made.error_message), (False, True), made.error_message)
            self.assertEqual(self.sessions(), [])
            self.stand_in.control(harms=[])

    def test_a_create_whose_response_is_lost_has_created_a_session(self):
        for harm in ("lose", "half"):
            self.stand_in.control(harms=[{"action": "CreateMcpSession", "harm": harm}])
            made = self.bay.create(CreateSessionParams(labels={"harm": harm}))
            left = self.bay.list(labels={"harm": harm}).session_ids
            self.assertEqual(self.stand_in.control()["harms"], [])
            # A client that retries by itself has created one more.
            self.assertEqual(len(left), 2 if made.success else 1, made.error_message)

    def test_a_session_that_vanishes_is_not_found(self):
        session = self.bay.create().session
        self.stand_in.control(vanish=session.session_id)
        self.assertEqual(self.sessions(), [])
        self.assertFalse(session.command.execute_command("true").success)
        self.assertIn("not found", session.get_status().error_message)

    def test_a_quota_is_reported(self):
        self.stand_in.control(max_sessions=1)
        self.assertTrue(self.bay.create().success)
        self.assertIn("the limit of 1 sessions is reached", self.bay.create().error_message)

    def test_the_stand_in_ends_with_its_parent(self):
        session = self.bay.create().session
        started = session.command.execute_command("setsid sleep 1000 >/dev/null 2>&1 & echo $!")
        pid = int(started.stdout)
        started_at = start_time(pid)
        self.stand_in.process.kill()
        until(lambda: start_time(pid) != started_at, "the processes of the session to end")


if __name__ == "__main__":
    main()
