"""The API document: validators accept it, and a client generated from it works."""

import importlib
import json
import pathlib
import pkgutil
import subprocess
import sys
import tempfile
import unittest
import urllib.request

from openapi_spec_validator import validate
from server import Server, main


class Document(unittest.TestCase):
    def setUp(self):
        self.server = Server()
        self.addCleanup(self.server.close)
        request = urllib.request.Request(f"{self.server.url}/openapi.json")
        request.add_header("Authorization", f"Bearer {self.server.token}")
        with urllib.request.urlopen(request, timeout=60) as response:
            self.document = json.load(response)

    def test_it_is_valid(self):
        validate(self.document)

    def test_a_generated_client_compiles_and_runs_a_command(self):
        directory = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        document, client = directory / "openapi.json", directory / "client"
        document.write_text(json.dumps(self.document))
        generator = pathlib.Path(sys.executable).with_name("openapi-python-client")
        command = [str(generator), "generate", "--path", str(document), "--output-path", str(client), "--meta", "none"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertNotIn("Endpoint will not be generated", done.stdout.replace(UNSUPPORTED, ""))
        sys.path.insert(0, str(directory))
        generated = importlib.import_module("client")
        names = [module.name for module in pkgutil.walk_packages(generated.__path__, "client.")]
        for name in names:
            importlib.import_module(name)
        self.assertGreater(len(names), 200)
        run = importlib.import_module("client.api.exec_.threads_exec")
        request = importlib.import_module("client.models").ExecRequest(command="echo $((6 * 7))")
        authenticated = generated.AuthenticatedClient(self.server.url, self.server.token)
        receipt = run.sync("generated", client=authenticated, body=request)
        self.assertEqual((receipt.stdout, receipt.exit_code), ("42\n", 0))


# The generator knows no bodies of other types than JSON, forms, text and plain bytes.
UNSUPPORTED = """WARNING parsing POST /api/projects/import within projects. Endpoint will not be generated."""

if __name__ == "__main__":
    main()
