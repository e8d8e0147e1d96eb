"""The examples that need no framework but deepagents, as their users run them."""

import pytest

from example import printed
from stead import Stead

LOOP = """\
$ mkdir -p demo && cd demo && seq 3 > a.py && seq 7 > b.py && pwd
/workspace/demo
$ longest=$(wc -l *.py | grep -v total | sort -n | tail -1); echo $longest
7 b.py
$ echo ${longest% *} > answer; cat answer
7
The longest file has 7 lines.
"""
DEEP_AGENT = "[0, 1, 4, 9]\n[0, 1, 4, 9, 16, 25]\nThe squares are in order.\n"
TAKE_OVER = "watcher sees: Deploy to production? [yes/no]\nagent sees: deploying: yes\n"
MCP_CLIENT = """\
tools: 20
the shell kept: hello from /tmp
the long command is running
its output: built
the person chose: main
"""
SECRET = """\
the agent learns: answered None
the program says: signed in with 13 characters
the screen has it: False
"""
FAN_OUT = "10 attempts, best: 7\nkept, with its files and its shell: True\n"


@pytest.fixture(scope="module")
def provider():
    """The default provider; only an isolated one has a /workspace of its own, and forks."""
    with Stead.connect() as client:
        [provider] = [one for one in client.providers() if one.default]
        if provider.suspend in (None, "none"):
            pytest.skip(f"{provider.name} cannot fork")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("loop", LOOP),
        ("deep_agent", DEEP_AGENT),
        ("take_over", TAKE_OVER),
        ("fan_out", FAN_OUT),
        ("mcp_client", MCP_CLIENT),
        ("secret", SECRET),
    ],
)
def test_an_example_prints_what_it_should(name, expected, provider):
    assert printed(name) == expected
    with Stead.connect() as client:
        assert [one for one in client.threads.list() if one.thread_id.startswith("example")] == []
        assert list(client.sandboxes.list(label="example=fan-out")) == []
