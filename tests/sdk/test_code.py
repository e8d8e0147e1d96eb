"""E2B's code interpreter client against this server."""

import os
import shutil
import unittest
import urllib.error
import urllib.request

from server import Server, main

SERVER = Server()
os.environ["E2B_API_KEY"] = SERVER.token
os.environ["E2B_API_URL"] = SERVER.url
os.environ["E2B_SANDBOX_URL"] = SERVER.url

from e2b import NotFoundException, TimeoutException  # noqa: E402  (the client reads the environment)
from e2b_code_interpreter import Sandbox  # noqa: E402


def tearDownModule():
    SERVER.close()


class Code(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sandbox = Sandbox.create(timeout=900)

    @classmethod
    def tearDownClass(cls):
        cls.sandbox.kill()

    def test_values_output_and_state(self):
        run = self.sandbox.run_code
        first = run("x = 1\nprint('hi')\nx + 1")
        self.assertEqual((first.text, first.logs.stdout, first.error), ("2", ["hi\n"], None))
        second = run("x += 1; x", envs={"A": "b"})
        self.assertEqual((second.text, second.execution_count), ("2", first.execution_count + 1))
        self.assertEqual(run("import os; os.environ['A']", envs={"A": "b"}).text, "b")
        self.assertEqual(run("os.environ.get('A')").results, [])
        self.assertEqual(run("os.getcwd()").text, "/home/user")

    def test_output_of_child_processes_is_in_order(self):
        seen = []
        ran = self.sandbox.run_code(
            "import os, sys\nos.system('echo out; echo err >&2')\n!echo $((1 + 2))\nprint('last');",
            on_stdout=lambda it: seen.append(it.line),
        )
        self.assertEqual("".join(ran.logs.stdout), "out\n3\nlast\n")
        self.assertEqual("".join(seen), "out\n3\nlast\n")
        self.assertEqual("".join(ran.logs.stderr), "err\n")

    def test_errors_and_awaited_values(self):
        failed = self.sandbox.run_code("def f():\n    return 1 / 0\nf()").error
        self.assertEqual((failed.name, failed.value), ("ZeroDivisionError", "division by zero"))
        self.assertIn("return 1 / 0", failed.traceback)
        self.assertNotIn("<string>", failed.traceback)
        self.assertEqual(self.sandbox.run_code("x = (").error.name, "SyntaxError")
        awaited = self.sandbox.run_code("import asyncio\nawait asyncio.sleep(0.01, 'woke')")
        self.assertEqual(awaited.text, "woke")

    def test_displayed_values(self):
        shown = "class H:\n    def _repr_html_(self):\n        return '<b>hi</b>'\ndisplay(H())\nH()"
        results = self.sandbox.run_code(shown).results
        self.assertEqual([(it.html, it.is_main_result) for it in results], [("<b>hi</b>", False), ("<b>hi</b>", True)])
        odd = self.sandbox.run_code("print('\\ud800'); float('nan')")
        self.assertEqual((odd.logs.stdout, odd.text), (["?\n"], "nan"))

    def test_contexts(self):
        made = self.sandbox.create_code_context(cwd="/tmp")
        self.assertEqual((made.language, made.cwd), ("python", "/tmp"))
        self.assertIn(made.id, [context.id for context in self.sandbox.list_code_contexts()])
        self.assertEqual(self.sandbox.run_code("y = 1; import os; os.getcwd()", context=made).text, "/tmp")
        self.assertEqual(self.sandbox.run_code("y").error.name, "NameError")
        self.sandbox.restart_code_context(made)
        self.assertEqual(self.sandbox.run_code("y", context=made).error.name, "NameError")
        self.sandbox.remove_code_context(made)
        self.assertNotIn(made.id, [context.id for context in self.sandbox.list_code_contexts()])
        with self.assertRaises(NotFoundException):
            self.sandbox.run_code("1", context=made)
        with self.assertRaises(Exception) as raised:
            self.sandbox.run_code("1", language="cobol")
        self.assertIn("unsupported language", str(raised.exception))

    def test_a_timeout_interrupts_the_code_and_keeps_the_context(self):
        made = self.sandbox.create_code_context()
        self.sandbox.run_code("z = 5", context=made)
        with self.assertRaises(TimeoutException):
            self.sandbox.run_code("import time\nwhile True: time.sleep(0.1)", context=made, timeout=2)
        self.assertEqual(self.sandbox.run_code("z", context=made).text, "5")

    def test_code_that_ends_the_interpreter_is_reported_and_the_next_runs(self):
        made = self.sandbox.create_code_context()
        ended = self.sandbox.run_code("import os; os._exit(3)", context=made)
        self.assertEqual(ended.error.name, "ContextEnded")
        self.assertEqual(self.sandbox.run_code("1 + 1", context=made).text, "2")

    def test_an_interpreter_that_is_ending_is_not_used(self):
        made = self.sandbox.create_code_context()
        for _ in range(5):
            self.assertEqual(self.sandbox.run_code("import os; os._exit(3)", context=made).error.name, "ContextEnded")
            self.assertEqual(self.sandbox.run_code("1 + 1", context=made).text, "2")
            self.sandbox.restart_code_context(made)
            self.assertEqual(self.sandbox.run_code("1 + 1", context=made).text, "2")
            other = self.sandbox.create_code_context()
            self.sandbox.remove_code_context(other)
            self.assertNotIn(other.id, [context.id for context in self.sandbox.list_code_contexts()])

    def test_code_needs_the_sandboxs_key(self):
        headers = {"E2b-Sandbox-Id": self.sandbox.sandbox_id, "E2b-Sandbox-Port": "49999"}
        request = urllib.request.Request(f"{SERVER.url}/execute", b'{"code": "1"}', headers)
        with self.assertRaises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(request)
        self.assertEqual(raised.exception.code, 401)

    @unittest.skipUnless(shutil.which("node"), "no node here")
    def test_javascript(self):
        run = lambda code: self.sandbox.run_code(code, language="javascript")  # noqa: E731
        if "not found" in "".join(self.sandbox.run_code("!node --version").logs.stderr):
            self.skipTest("no node in the sandbox")
        first = run("const x = 1; console.log('hi'); x + 1")
        self.assertEqual((first.text, "".join(first.logs.stdout)), ("2", "hi\n"))
        self.assertEqual(run("await Promise.resolve(x + 4)").text, "5")
        self.assertEqual(run("null.x").error.name, "TypeError")

    def test_a_context_outlives_the_server(self):
        made = self.sandbox.create_code_context()
        self.sandbox.run_code("kept = 'yes'", context=made)
        SERVER.kill()
        SERVER.start()
        self.assertIn(made.id, [context.id for context in self.sandbox.list_code_contexts()])
        self.assertEqual(self.sandbox.run_code("kept", context=made).text, "yes")
        self.assertEqual(self.sandbox.commands.list(), [])


if __name__ == "__main__":
    main()
