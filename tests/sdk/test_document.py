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

from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import validate
from server import Server, main


class Document(unittest.TestCase):
    def setUp(self):
        self.server = Server()
        self.addCleanup(self.server.close)
        self.document = self.ask("GET", "/openapi.json")

    def ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.server.url}{path}", data=data, method=method)
        request.add_header("Authorization", f"Bearer {self.server.token}")
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)

    def test_answers_have_the_described_types(self):
        policy = {"idle_timeout_s": 60, "max_running_hours": 2}
        thread = self.ask("PUT", "/api/threads/t", {"policy": policy})
        command = {"command": "cd /tmp; export A=1; echo x"}
        receipt = self.ask("POST", "/api/threads/t/exec", command)
        terminal = f"/api/terminals/{receipt['terminal_id']}"
        self.ask("POST", f"{terminal}/rollback", {"version": receipt["version"] - 1})
        self.ask("POST", f"{terminal}/fork", {})
        config = {"routes": {"/memories/": "store"}, "cleanup_after_days": 9}
        answers = {
            "CommandReceipt": receipt,
            "ThreadView": thread,
            "List_VersionView": self.ask("GET", f"{terminal}/versions"),
            "VersionDetail": self.ask("GET", f"{terminal}/versions/{receipt['version']}"),
            "DefaultTerminal": self.ask("GET", "/api/threads/t/terminal"),
            "LeaseView": self.ask("GET", "/api/threads/t/lease"),
            "SessionView": self.ask("GET", "/api/threads/t/session"),
            "List_ProviderView": self.ask("GET", "/api/providers"),
            "ProjectView": self.ask("POST", "/api/projects", {"prefix": "p", "config": config}),
            "List_ListeningPort": self.ask("GET", "/api/threads/t/ports"),
        }
        for name, answer in answers.items():
            with self.subTest(name):
                schema = closed({"components": self.document["components"], "$ref": f"#/components/schemas/{name}"})
                OAS31Validator(schema).validate(answer)

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


def closed(schema):
    """The schema, in which an object has no property that is not described."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {name: closed(value) for name, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema and "allOf" not in schema:
        changed["additionalProperties"] = False
    return changed


# The generator knows no bodies of other types than JSON, forms, text and plain bytes.
UNSUPPORTED = """WARNING parsing POST /api/projects/import within projects. Endpoint will not be generated."""

if __name__ == "__main__":
    main()
