"""A server for the tests of one adapter, which find it as a user's program does."""

import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from server import Server


@pytest.fixture(scope="session", autouse=True)
def server():
    server = Server()
    os.environ["STEAD_URL"], os.environ["STEAD_TOKEN"] = server.url, server.token
    yield server
    server.close()


def pytest_terminal_summary(terminalreporter):
    for kind in ("skipped", "xfailed"):
        for report in terminalreporter.stats.get(kind, []):
            terminalreporter.write_line(f"{kind}: {report.nodeid}: {report.longrepr}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    """Fails if fewer tests passed than the suites of the framework have, so that none is skipped unnoticed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    passed, expected = len(reporter.stats.get("passed", [])), int(os.environ.get("EXPECTED_PASSES", 0))
    if exitstatus == 0 and passed < expected:
        reporter.write_line(f"{passed} tests passed, and {expected} must")
        session.exitstatus = 1
