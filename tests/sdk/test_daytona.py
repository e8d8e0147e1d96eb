"""Daytona's own Python client against this server."""

import json
import os
import threading
import unittest
import urllib.error
import urllib.request

from server import LISTENER, Server, ask, echo, main, until

SERVER = Server()
os.environ["DAYTONA_API_KEY"] = SERVER.token
os.environ["DAYTONA_API_URL"] = f"{SERVER.url}/daytona"
os.environ["DAYTONA_TARGET"] = "local"

from daytona import (  # noqa: E402  (the client reads the environment)
    CreateSandboxFromSnapshotParams,
    Daytona,
    Sandbox,
    SessionExecuteRequest,
)
from daytona.common.pty import PtySize  # noqa: E402

DAYTONA = Daytona()


def tearDownModule():
    SERVER.close()


def create(**choices):
    return DAYTONA.create(CreateSandboxFromSnapshotParams(**choices))


def listed(labels):
    """Lists the sandboxes with these labels, with newer and older clients."""
    try:
        from daytona import ListSandboxesQuery
    except ImportError:
        found = DAYTONA.list(labels)
        return list(getattr(found, "items", found))
    return list(DAYTONA.list(ListSandboxesQuery(labels=labels)))


class Toolbox(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sandbox = create(env_vars={"FOO": "bar"}, auto_stop_interval=0)

    @classmethod
    def tearDownClass(cls):
        cls.sandbox.delete()

    def test_commands(self):
        answer = self.sandbox.process.exec("echo hi; echo $FOO; echo err >&2; pwd; exit 3")
        self.assertEqual((answer.exit_code, answer.result), (3, "hi\nbar\nerr\n/home/daytona\n"))
        answer = self.sandbox.process.exec("pwd; echo $X", cwd="/tmp", env={"X": "it's"})
        self.assertEqual((answer.exit_code, answer.result), (0, "/tmp\nit's\n"))
        with self.assertRaises(Exception):
            self.sandbox.process.exec("sleep 100", timeout=1)
        answer = self.sandbox.process.code_run("print(1+1)")
        self.assertEqual((answer.exit_code, answer.result), (0, "2\n"))

    def test_a_session_keeps_its_state(self):
        process = self.sandbox.process
        process.create_session("s1")
        run = lambda text: process.execute_session_command(  # noqa: E731
            "s1", SessionExecuteRequest(command=text)
        )
        first = run("cd /tmp; export A=1; f() { echo f-$A; }; echo out; echo err >&2")
        self.assertEqual((first.exit_code, first.stdout, first.stderr), (0, "out\n", "err\n"))
        second = run("pwd; f; (exit 5)")
        self.assertEqual((second.exit_code, second.stdout), (5, "/tmp\nf-1\n"))
        self.assertEqual(run("exit 4").exit_code, 4)
        self.assertEqual(run("f").stdout, "f-1\n")
        commands = process.get_session("s1").commands
        self.assertEqual(len(commands), 4)
        self.assertEqual(process.get_session_command("s1", commands[1].id).exit_code, 5)
        with self.assertRaises(Exception):
            process.create_session("s1")
        self.assertIn("s1", [session.session_id for session in process.list_sessions()])
        process.delete_session("s1")
        with self.assertRaises(Exception):
            process.get_session("s1")

    def test_a_command_in_the_background(self):
        process = self.sandbox.process
        process.create_session("s2")
        begun = process.execute_session_command(
            "s2",
            SessionExecuteRequest(command="echo begun; read x; echo got $x", run_async=True),
        )
        process.send_session_command_input("s2", begun.cmd_id, "inp\n")
        ended = lambda: process.get_session_command("s2", begun.cmd_id).exit_code == 0  # noqa: E731
        until(ended, "the end")
        logs = process.get_session_command_logs("s2", begun.cmd_id)
        self.assertEqual(logs.stdout, "begun\ngot inp\n")
        process.delete_session("s2")

    def test_terminals(self):
        process, seen = self.sandbox.process, bytearray()
        handle = process.create_pty_session("p1", pty_size=PtySize(rows=24, cols=80))
        end = []
        listen = lambda: end.append(handle.wait(on_data=seen.extend))  # noqa: E731
        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        handle.send_input("echo pty-$((1+1)); stty size\n")
        until(lambda: b"pty-2" in seen and b"24 80" in seen, "the answer")
        process.resize_pty_session("p1", PtySize(rows=30, cols=100))
        handle.send_input("stty size\n")
        until(lambda: b"30 100" in seen, "the other size")
        self.assertEqual([one.id for one in process.list_pty_sessions()], ["p1"])
        handle.send_input("exit 7\n")
        thread.join(60)
        self.assertEqual(end[0].exit_code, 7)

    def test_files(self):
        fs, root = self.sandbox.fs, f"/tmp/daytona-{os.getpid()}"
        fs.create_folder(root, "755")
        fs.upload_file(b"hello", f"{root}/a.txt")
        self.assertEqual(fs.download_file(f"{root}/a.txt"), b"hello")
        fs.upload_file(b"odd", f"{root}/odd +.txt")
        self.assertEqual(fs.download_file(f"{root}/odd +.txt"), b"odd")
        fs.delete_file(f"{root}/odd +.txt")
        self.assertEqual([file.name for file in fs.list_files(root)], ["a.txt"])
        info = fs.get_file_info(f"{root}/a.txt")
        self.assertEqual((info.size, info.is_dir, info.permissions), (5, False, "0644"))
        fs.move_files(f"{root}/a.txt", f"{root}/b.txt")
        self.assertEqual(fs.search_files(root, "*.txt").files, [f"{root}/b.txt"])
        found = fs.find_files(root, "hello")
        self.assertEqual([(one.file, one.line) for one in found], [(f"{root}/b.txt", 1)])
        fs.set_file_permissions(f"{root}/b.txt", mode="600")
        self.assertEqual(fs.get_file_info(f"{root}/b.txt").permissions, "0600")
        fs.replace_in_files([f"{root}/b.txt"], "hello", "bye")
        self.assertEqual(fs.download_file(f"{root}/b.txt"), b"bye")
        large = os.urandom(1 << 20) * 8
        fs.upload_file(large, f"{root}/large")
        self.assertEqual(fs.download_file(f"{root}/large"), large)
        with self.assertRaises(Exception):
            fs.download_file(f"{root}/nothing")
        fs.delete_file(root, recursive=True)
        with self.assertRaises(Exception):
            fs.get_file_info(root)


    def test_git(self):
        git, root = self.sandbox.git, f"/tmp/git-{os.getpid()}"
        run = self.sandbox.process.exec
        self.assertEqual(run(f"git init -q -b main {root}/a").exit_code, 0)
        self.sandbox.fs.upload_file(b"one\n", f"{root}/a/one.txt")
        (found,) = git.status(f"{root}/a").file_status
        self.assertEqual((found.name, found.staging), ("one.txt", "Untracked"))
        git.add(f"{root}/a", ["one.txt"])
        (found,) = git.status(f"{root}/a").file_status
        self.assertEqual((found.staging, found.worktree), ("Added", "Unmodified"))
        made = git.commit(f"{root}/a", "First", "Ann", "ann@example.com")
        self.assertEqual(run(f"git -C {root}/a log -1 --format='%H %an %s'").result, f"{made.sha} Ann First\n")
        git.clone(f"file://{root}/a", f"{root}/b")
        git.create_branch(f"{root}/b", "side")
        self.assertEqual(git.status(f"{root}/b").current_branch, "side")
        self.assertEqual(sorted(git.branches(f"{root}/b").branches), ["main", "side"])
        git.checkout_branch(f"{root}/b", "main")
        git.delete_branch(f"{root}/b", "side")
        self.assertEqual(git.branches(f"{root}/b").branches, ["main"])
        git.commit(f"{root}/a", "Second", "Ann", "ann@example.com", allow_empty=True)
        git.pull(f"{root}/b")
        status = git.status(f"{root}/b")
        self.assertEqual((status.ahead, status.behind, status.branch_published), (0, 0, True))
        self.assertEqual(run(f"git -C {root}/b log --format=%s").result, "Second\nFirst\n")
        git.create_branch(f"{root}/b", "pushed")
        git.commit(f"{root}/b", "Third", "Ben", "ben@example.com", allow_empty=True)
        git.push(f"{root}/b")
        self.assertIn("pushed", git.branches(f"{root}/a").branches)
        with self.assertRaises(Exception):
            git.status("/tmp")
        with self.assertRaises(Exception):
            git.clone("file:///nowhere", f"{root}/c")
        self.sandbox.fs.delete_file(root, recursive=True)

    def test_an_interpreter_keeps_its_state(self):
        interpreter = self.sandbox.code_interpreter
        seen = []
        first = interpreter.run_code("x = 1\nprint('hi')", on_stdout=lambda it: seen.append(it.output))
        self.assertEqual((first.stdout, "".join(seen), first.error), ("hi\n", "hi\n", None))
        other = interpreter.create_context(cwd="/tmp")
        self.assertIn(other.id, [context.id for context in interpreter.list_contexts()])
        code = "import os, sys; print(x + 1, os.environ['A']); print('err', file=sys.stderr)"
        second = interpreter.run_code(code, envs={"A": "b"})
        self.assertEqual((second.stdout, second.stderr), ("2 b\n", "err\n"))
        third = interpreter.run_code("print(x)", context=other)
        self.assertEqual((third.error.name, third.stdout), ("NameError", ""))
        self.assertEqual(interpreter.run_code("import os; print(os.getcwd())", context=other).stdout, "/tmp\n")
        with self.assertRaises(Exception):
            interpreter.run_code("import time\nwhile True: time.sleep(0.1)", timeout=1)
        self.assertEqual(interpreter.run_code("print(x)").stdout, "1\n")
        interpreter.delete_context(other)
        self.assertEqual(interpreter.list_contexts(), [])
        with self.assertRaises(Exception):
            interpreter.run_code("1", context=other)

    def test_ports(self):
        self.sandbox.fs.upload_file(LISTENER.encode(), "/tmp/listen.py")
        process = self.sandbox.process
        process.create_session("ports")
        begun = process.execute_session_command(
            "ports", SessionExecuteRequest(command="python3 /tmp/listen.py", run_async=True)
        )
        output = lambda: process.get_session_command_logs("ports", begun.cmd_id).stdout  # noqa: E731
        port = int(until(lambda: [text for text in [output() or ""] if "\n" in text], "the port")[0])
        link = self.sandbox.get_preview_link(port)
        host = link.url.split("//")[1]
        key = {"x-daytona-preview-token": link.token}
        self.assertEqual(ask(SERVER, host, "/a")[0], 401)
        status, _, body = ask(SERVER, host, "/a", key)
        self.assertEqual(status, 200)
        self.assertTrue(body.startswith("/a "), body)
        self.assertNotIn("preview-token", body)
        self.assertEqual(echo(SERVER, host, b"abc", f"x-daytona-preview-token: {link.token}\r\n"), b"abc")
        signed = self.sandbox.create_signed_preview_url(port, 600)
        self.assertTrue(ask(SERVER, signed.url.split("//")[1], "/b")[2].startswith("/b "))
        self.assertEqual(ask(SERVER, signed.url.split("//")[1].replace("-s", "-s0", 1), "/b")[0], 502)
        process.delete_session("ports")
        until(lambda: ask(SERVER, host, "/a", key)[0] == 502, "the end of the program")


class Lives(unittest.TestCase):
    # The shortest interval is a minute, which passes while other tests run. One client is enough.
    takes_time = os.environ.get("STEAD_PROVIDER") != "local"

    @classmethod
    def setUpClass(cls):
        cls.idle = create(auto_stop_interval=1) if cls.takes_time else None

    @unittest.skipUnless(takes_time, "the other client tests it")
    def test_an_idle_sandbox_stops(self):
        state = lambda: DAYTONA.get(self.idle.id).state  # noqa: E731
        until(lambda: state() == "stopped", "the stop", deadline=180)
        self.idle.start()
        self.assertEqual(self.idle.process.exec("echo again").result, "again\n")
        self.idle.delete()

    def test_a_paused_sandbox_keeps_its_processes(self):
        sandbox = create(auto_stop_interval=0)
        if not hasattr(sandbox, "pause"):
            sandbox.delete()
            self.skipTest("an older client")
        sandbox.process.create_session("s")
        ask = SessionExecuteRequest(command="read x; echo got $x", run_async=True)
        begun = sandbox.process.execute_session_command("s", ask)
        sandbox.pause()
        self.assertEqual(DAYTONA.get(sandbox.id).state, "paused")
        with self.assertRaises(Exception):
            sandbox.process.exec("true")
        sandbox.start()
        sandbox.process.send_session_command_input("s", begun.cmd_id, "in\n")
        logs = lambda: sandbox.process.get_session_command_logs("s", begun.cmd_id).stdout  # noqa: E731
        until(lambda: logs() == "got in\n", "the input")
        sandbox.delete()

    @unittest.skipUnless(hasattr(Sandbox, "fork"), "an older client")
    def test_forks_and_snapshots_have_the_files(self):
        sandbox = create(snapshot="namespace", auto_stop_interval=0, env_vars={"FOO": "bar"})
        sandbox.fs.upload_file(b"before", "mine.txt")
        fork = sandbox.fork(name="my-fork")
        name = f"snap-{sandbox.id}"
        sandbox.create_snapshot(name)
        sandbox.fs.upload_file(b"after", "mine.txt")
        self.assertEqual(DAYTONA.snapshot.get(name).source_sandbox_id, sandbox.id)
        self.assertIn(name, [one.name for one in DAYTONA.snapshot.list().items])
        again = create(snapshot=name, auto_stop_interval=0)
        self.assertEqual(fork.name, "my-fork")
        self.assertEqual(fork.process.exec("echo $FOO").result, "bar\n")
        for one in (fork, again):
            self.assertEqual(one.fs.download_file("mine.txt"), b"before")
            one.delete()
        sandbox.delete()
        DAYTONA.snapshot.delete(name)
        with self.assertRaises(Exception):
            DAYTONA.snapshot.get(name)

    @unittest.skipUnless(hasattr(Sandbox, "set_auto_pause_interval"), "an older client")
    def test_an_auto_pause_interval_replaces_the_auto_stop_interval(self):
        sandbox = create(auto_stop_interval=7)
        for minutes, expected in ((30, (1800, "pause")), (0, (420, "stop"))):
            sandbox.set_auto_pause_interval(minutes)
            key = {"Authorization": f"Bearer {SERVER.token}"}
            _, _, session = ask(SERVER, SERVER.address, f"/api/threads/{sandbox.id}/session", key)
            now = json.loads(session)["policy"]
            self.assertEqual((now["idle_timeout_s"], now["on_expiry"]), expected)
            self.assertEqual(DAYTONA.get(sandbox.id).auto_pause_interval, minutes)
        sandbox.delete()

    @unittest.skipUnless(hasattr(Sandbox, "update_env"), "an older client")
    def test_changed_variables_apply_to_later_commands(self):
        sandbox = create(env_vars={"OLD": "1", "FOO": "bar"}, auto_stop_interval=0)
        sandbox.update_env({"NEW": "it's", "FOO": "other"}, unset=["OLD"])
        output = sandbox.process.exec('echo "$NEW|$FOO|${OLD-gone}"').result
        self.assertEqual(output, "it's|other|gone\n")
        sandbox.delete()

    def test_rules_for_the_network(self):
        choices = {"snapshot": "namespace", "auto_stop_interval": 0, "network_block_all": True}
        try:
            sandbox = create(**choices)
        except Exception as error:  # noqa: BLE001  (each version has a type of its own)
            if "provider" not in str(error):
                raise
            self.skipTest(f"this machine has no namespace sandboxes: {error}")
        send = "import socket as s, sys; o = s.socket(2, 2); o.connect((sys.argv[1], 9)); o.send(b'x')"
        reaches = lambda address: sandbox.process.exec(f'python3 -c "{send}" {address}').exit_code == 0  # noqa: E731
        self.assertFalse(reaches("203.0.113.1"))
        self.assertTrue(sandbox.network_block_all)
        if not hasattr(sandbox, "update_network_settings"):
            return sandbox.delete()
        try:
            sandbox.update_network_settings(network_allow_list="203.0.113.0/25,198.51.100.7/32")
        except Exception as error:  # noqa: BLE001
            sandbox.delete()
            if "network" not in str(error):
                raise
            self.skipTest(f"sandboxes reach nothing on this machine: {error}")
        self.assertEqual(sandbox.network_allow_list, "203.0.113.0/25,198.51.100.7/32")
        self.assertEqual([reaches(at) for at in ("203.0.113.1", "203.0.113.200")], [True, False])
        sandbox.update_network_settings(network_block_all=False)
        self.assertTrue(reaches("203.0.113.200"))
        sandbox.delete()
        return None

    def test_a_sandbox_is_deleted_when_it_stops(self):
        sandbox = create(auto_delete_interval=0, auto_stop_interval=0)
        self.assertEqual(DAYTONA.get(sandbox.id).auto_delete_interval, 0)
        sandbox.stop()

        def gone():
            try:
                return DAYTONA.get(sandbox.id) is None
            except Exception as error:
                return "not found" in str(error)

        until(gone, "the end")

    def test_from_create_to_delete(self):
        sandbox = create(labels={"k": "v"}, auto_stop_interval=30)
        self.assertEqual(sandbox.state, "started")
        sandbox.process.create_session("kept")
        in_session = lambda text: sandbox.process.execute_session_command(  # noqa: E731
            "kept", SessionExecuteRequest(command=text)
        )
        in_session("cd /tmp; X=1")
        sandbox.set_labels({"a": "b"})
        sandbox.set_autostop_interval(60)
        found = DAYTONA.get(sandbox.id)
        self.assertEqual((found.labels, found.auto_stop_interval), ({"a": "b"}, 60))
        self.assertEqual([one.id for one in listed({"a": "b"})], [sandbox.id])
        self.assertEqual(listed({"a": "c"}), [])
        sandbox.stop()
        self.assertEqual(DAYTONA.get(sandbox.id).state, "stopped")
        with self.assertRaises(Exception):
            sandbox.process.exec("true")
        sandbox.start()
        self.assertEqual(DAYTONA.get(sandbox.id).state, "started")
        self.assertEqual(in_session("pwd; echo $X").stdout, "/tmp\n1\n")
        sandbox.stop()
        sandbox.archive()
        self.assertEqual(DAYTONA.get(sandbox.id).state, "archived")
        sandbox.delete()
        with self.assertRaises(Exception):
            DAYTONA.get(sandbox.id)



@unittest.skipUnless(hasattr(Sandbox, "download_url"), "an older client")
class Newer(unittest.TestCase):
    """Features that only newer clients have."""

    @classmethod
    def setUpClass(cls):
        cls.mark = {"newer": str(os.getpid())}
        cls.sandbox = create(name=f"newer-{os.getpid()}", labels=cls.mark, auto_stop_interval=0)

    @classmethod
    def tearDownClass(cls):
        cls.sandbox.delete()

    def test_errors_have_the_types_of_the_client(self):
        from daytona.common import errors

        fs, git, process = self.sandbox.fs, self.sandbox.git, self.sandbox.process
        root = f"/tmp/kinds-{os.getpid()}"
        git.init(f"{root}/repo", initial_branch="main")
        git.commit(f"{root}/repo", "First", "Ann", "ann@example.com", allow_empty=True)
        git.create_branch(f"{root}/repo", "side")
        process.create_session("kinds")
        ended = process.execute_session_command("kinds", SessionExecuteRequest(command="true"))
        for kind, call in (
            ("FileNotFound", lambda: fs.download_file(f"{root}/nothing")),
            ("FileNotFound", lambda: fs.get_file_info(f"{root}/nothing")),
            ("FileNotFound", lambda: fs.list_files(f"{root}/nothing")),
            ("InvalidFilePath", lambda: fs.delete_file(root)),
            ("BadRequest", lambda: fs.create_folder(f"{root}/new", "rwx")),
            ("ProcessExecutionTimeout", lambda: process.exec("sleep 100", timeout=1)),
            ("CommandAlreadyCompleted", lambda: process.send_session_command_input("kinds", ended.cmd_id, "x")),
            ("Conflict", lambda: process.create_session("kinds")),
            ("NotFound", lambda: process.get_session("missing")),
            ("GitRepoNotFound", lambda: git.status(f"{root}/nothing")),
            ("GitBranchExists", lambda: git.create_branch(f"{root}/repo", "side")),
            ("GitBranchNotFound", lambda: git.checkout_branch(f"{root}/repo", "nothing")),
            ("NotFound", lambda: DAYTONA.get("missing")),
            ("Conflict", lambda: create(name=self.sandbox.name)),
            ("NotFound", lambda: DAYTONA.volume.get("nothing")),
        ):
            with self.subTest(kind), self.assertRaises(getattr(errors, f"Daytona{kind}Error")):
                call()
        process.delete_session("kinds")
        fs.delete_file(root, recursive=True)

    def test_links_to_files(self):
        def http(method, url, data=None, kind="application/octet-stream"):
            request = urllib.request.Request(url, data=data, method=method, headers={"Content-Type": kind})
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return answer.status, answer.read()
            except urllib.error.HTTPError as error:
                return error.code, b""

        path = f"/tmp/a link {os.getpid()}.txt"
        up = self.sandbox.upload_url(path)
        self.assertEqual(http("POST", up, b"raw")[0], 200)
        self.assertEqual(self.sandbox.fs.download_file(path), b"raw")
        form = b'--B\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\nform\r\n--B--\r\n'
        self.assertEqual(http("POST", up, form, "multipart/form-data; boundary=B")[0], 200)
        down = self.sandbox.download_url(path)
        self.assertEqual(http("GET", down), (200, b"form"))
        self.assertEqual(http("GET", self.sandbox.download_url(path, ttl_seconds=0)), (200, b"form"))
        # The link reads this file only, until the signing key is rotated.
        self.assertEqual(http("GET", down.replace("a+link", "another"))[0], 401)
        self.assertEqual(http("GET", down.replace("expires=", "expires=1"))[0], 401)
        self.assertEqual(http("POST", down.replace("download", "upload-v2"), b"x")[0], 401)
        self.assertEqual(http("GET", down.replace("files/download", "work-dir"))[0], 401)
        self.sandbox.rotate_signing_key()
        self.assertEqual(http("GET", down)[0], 401)
        self.assertEqual(http("GET", self.sandbox.download_url(path)), (200, b"form"))
        self.sandbox.fs.delete_file(path)

    def test_a_link_to_a_port_can_be_revoked(self):
        link = self.sandbox.create_signed_preview_url(3001, 600)
        host = link.url.split("//")[1]
        self.assertEqual(ask(SERVER, host, "/")[0], 502)
        self.sandbox.expire_signed_preview_url(3001, link.token)
        self.assertEqual(ask(SERVER, host, "/")[0], 401)

    def test_lists_are_filtered_and_ordered(self):
        from daytona import ListSandboxesQuery
        from daytona_api_client import SandboxListSortDirection, SandboxListSortField, SandboxState

        other = create(name=f"a-newer-{os.getpid()}", labels=self.mark, public=True, auto_stop_interval=0)
        names = lambda **choices: [  # noqa: E731
            one.name for one in DAYTONA.list(ListSandboxesQuery(labels=self.mark, **choices))
        ]
        both = [other.name, self.sandbox.name]
        self.assertEqual(names(), both)
        self.assertEqual(names(limit=1), both)
        self.assertEqual(names(name="NEWER-"), [self.sandbox.name])
        self.assertEqual(names(id=other.id[:30].upper(), is_public=True), [other.name])
        self.assertEqual(names(min_cpu=10_000), [])
        self.assertEqual(names(states=[SandboxState.STOPPED]), [])
        order = {"sort": SandboxListSortField.NAME, "order": SandboxListSortDirection.DESC}
        self.assertEqual(names(**order), both[::-1])
        other.stop()
        self.assertEqual(names(states=[SandboxState.STOPPED]), [other.name])
        other.delete()

    def test_limits_are_reported_and_changed(self):
        from daytona import Resources

        sandbox = create(snapshot="namespace", auto_stop_interval=0)
        self.assertTrue(sandbox.cpu > 0 and sandbox.memory > 0 and sandbox.disk > 0)
        sandbox.resize(Resources(cpu=1, memory=1))
        self.assertEqual((sandbox.cpu, sandbox.memory), (1, 1))
        self.assertEqual(DAYTONA.get(sandbox.id).memory, 1)
        with self.assertRaises(Exception):
            sandbox.resize(Resources(disk=sandbox.disk + 1))
        larger = sandbox.disk + 1
        sandbox.fs.upload_file(b"kept", "kept.txt")
        sandbox.stop()
        sandbox.resize(Resources(memory=2, disk=larger))
        with self.assertRaises(Exception):
            sandbox.resize(Resources(disk=1))
        sandbox.start()
        self.assertEqual((sandbox.cpu, sandbox.memory, sandbox.disk), (1, 2, larger))
        self.assertEqual(sandbox.fs.download_file("kept.txt"), b"kept")
        blocks = int(sandbox.process.exec("df -k / | awk 'END {print $2}'").result)
        self.assertGreater(blocks, (larger - 1) << 20)
        self.assertTrue(sandbox.get_metrics())
        sandbox.delete()

    def test_volumes_are_shared(self):
        from daytona import VolumeMount

        volume = DAYTONA.volume.get(f"volume-{os.getpid()}", create=True)
        self.assertIn(volume.name, [one.name for one in DAYTONA.volume.list()])
        mount = lambda path: [VolumeMount(volume_id=volume.id, mount_path=path)]  # noqa: E731
        one = create(snapshot="namespace", volumes=mount("/home/daytona/shared"), auto_stop_interval=0)
        two = create(snapshot="namespace", volumes=mount("/mnt/shared"), auto_stop_interval=0)
        self.assertEqual(one.volumes[0].mount_path, "/home/daytona/shared")
        one.fs.upload_file(b"both", "shared/file.txt")
        self.assertEqual(two.process.exec("cat /mnt/shared/file.txt").result, "both")
        with self.assertRaises(Exception):
            DAYTONA.volume.delete(volume)
        one.delete()
        two.delete()
        DAYTONA.volume.delete(volume)
        with self.assertRaises(Exception):
            DAYTONA.volume.get(volume.name)

    def test_changes_of_state_are_reported(self):
        import socketio

        events = []
        client = socketio.Client()
        client.on("sandbox.state.updated", events.append)
        choices = {"socketio_path": "/daytona/socket.io/", "transports": ["websocket"]}
        with self.assertRaises(socketio.exceptions.ConnectionError):
            socketio.Client(reconnection=False).connect(SERVER.url, auth={"token": "wrong"}, **choices)
        client.connect(SERVER.url, auth={"token": SERVER.token}, **choices)
        sandbox = create(auto_stop_interval=0)
        states = lambda: [it["newState"] for it in events if it["sandbox"]["id"] == sandbox.id]  # noqa: E731
        until(lambda: "started" in states(), "the start")
        sandbox.stop()
        until(lambda: "stopped" in states(), "the stop")
        sandbox.delete()
        until(lambda: states()[-1:] == ["destroyed"], "the end")
        client.disconnect()


class Crash(unittest.TestCase):
    def test_the_server_is_killed_while_a_command_runs(self):
        sandbox = create(auto_stop_interval=0)
        sandbox.process.create_session("s")
        begun = sandbox.process.execute_session_command(
            "s", SessionExecuteRequest(command="X=1; echo begun; read y; echo got $y", run_async=True)
        )
        SERVER.kill()
        SERVER.start()
        again = DAYTONA.get(sandbox.id)
        again.process.send_session_command_input("s", begun.cmd_id, "in\n")
        ended = lambda: again.process.get_session_command("s", begun.cmd_id).exit_code == 0  # noqa: E731
        until(ended, "the end")
        logs = again.process.get_session_command_logs("s", begun.cmd_id)
        self.assertEqual(logs.stdout, "begun\ngot in\n")
        again.delete()


if __name__ == "__main__":
    main()
