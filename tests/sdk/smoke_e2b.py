"""Create, run, files, kill with one release of E2B's Python client, against a server that is already running."""

import unittest

from e2b import CommandExitException, Sandbox

from server import main


class Smoke(unittest.TestCase):
    def test_one_sandbox(self):
        sandbox = Sandbox.create(timeout=600, envs={"FOO": "bar"})
        try:
            result = sandbox.commands.run("echo $FOO; echo err >&2")
            self.assertEqual((result.stdout, result.stderr, result.exit_code), ("bar\n", "err\n", 0))
            with self.assertRaises(CommandExitException) as raised:
                sandbox.commands.run("exit 3")
            self.assertEqual(raised.exception.exit_code, 3)
            sandbox.files.write("/home/user/of/a", "hello")
            self.assertEqual(sandbox.files.read("/home/user/of/a"), "hello")
            self.assertEqual([entry.name for entry in sandbox.files.list("/home/user/of")], ["a"])
            self.assertTrue(sandbox.is_running())
        finally:
            sandbox.kill()
        self.assertFalse(sandbox.is_running())


if __name__ == "__main__":
    main()
