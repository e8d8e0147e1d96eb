"""Create, run, files, delete with one release of Daytona's Python client, against a server that is already running."""

import unittest

from daytona import CreateSandboxFromSnapshotParams, Daytona

from server import main


class Smoke(unittest.TestCase):
    def test_one_sandbox(self):
        daytona = Daytona()
        sandbox = daytona.create(CreateSandboxFromSnapshotParams(env_vars={"FOO": "bar"}))
        try:
            answer = sandbox.process.exec("printf $FOO; exit 3")
            self.assertEqual((answer.exit_code, answer.result), (3, "bar"))
            sandbox.fs.upload_file(b"hello", "/tmp/of/a")
            self.assertEqual(sandbox.fs.download_file("/tmp/of/a"), b"hello")
            self.assertEqual([entry.name for entry in sandbox.fs.list_files("/tmp/of")], ["a"])
            self.assertEqual(daytona.get(sandbox.id).id, sandbox.id)
        finally:
            sandbox.delete()
        with self.assertRaises(Exception):
            daytona.get(sandbox.id)


if __name__ == "__main__":
    main()
