"""LangChain's own tests for sandboxes, through our adapter and through its clients of E2B and Daytona."""

import atexit
import collections
import os
import pathlib
import sys

import pytest
from langchain_tests.integration_tests import SandboxIntegrationTests

from server import Server

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "sdk/python/src"))

# How many tests LangChain has for a sandbox.
ALL = 86

if __name__ != "__main__":
    SERVER = Server()
    atexit.register(SERVER.close)
    os.environ["E2B_API_KEY"] = os.environ["DAYTONA_API_KEY"] = SERVER.token
    os.environ["E2B_API_URL"] = os.environ["E2B_SANDBOX_URL"] = SERVER.url
    os.environ["DAYTONA_API_URL"] = f"{SERVER.url}/daytona"


class TestStead(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self):
        from stead import Stead
        from stead.adapters.langchain import SteadSandbox

        with Stead(SERVER.url, SERVER.token) as client, client.sandboxes.create() as sandbox:
            # Some tests call `python`; the default image has the programs of this machine, perhaps only `python3`.
            sandbox.exec("mkdir -p ~/bin; ln -s $(command -v python3) ~/bin/python; PATH=~/bin:$PATH").check()
            yield SteadSandbox(sandbox)


class TestE2b(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self):
        from e2b import Sandbox
        from langchain_e2b import E2BSandbox

        sandbox = Sandbox.create(timeout=1800)
        yield E2BSandbox(sandbox=sandbox)
        sandbox.kill()


class TestDaytona(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self):
        from daytona import Daytona
        from langchain_daytona import DaytonaSandbox

        sandbox = Daytona().create()
        yield DaytonaSandbox(sandbox=sandbox)
        sandbox.delete()


class Count:
    """Counts the passed tests, so that a skipped test is noticed."""

    def __init__(self):
        self.passed = collections.Counter()

    def pytest_runtest_logreport(self, report):
        if report.when == "call" and report.passed:
            self.passed[report.nodeid.split("::")[1]] += 1


def main():
    count, chosen = Count(), sys.argv[1:]
    # This plugin would forbid sockets.
    options = ["-q", "--tb=short", "-p", "no:cacheprovider", "-p", "no:socket", "-W", "ignore"]
    options += ["-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=class"]
    code = pytest.main([*options, __file__, *chosen], plugins=[count])
    for name, passed in sorted(count.passed.items()):
        print(f"langchain: {name}: {passed} of {ALL} passed", flush=True)
    if not code and not chosen and sorted(count.passed.values()) != [ALL, ALL, ALL]:
        code = 1
    sys.exit(code)


if __name__ == "__main__":
    main()
