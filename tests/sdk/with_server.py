"""Runs a command against a server of its own, as `stead env` configures its clients: `with_server.py COMMAND…`."""

import os
import re
import subprocess
import sys

from server import Server


def configuration(server, kind):
    """Returns the environment that `stead env` prints for clients of one API."""
    command = [server.binary, "env", kind, "--home", server.home]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return dict(re.findall(r"^export (\w+)='(.*)'$", printed, re.MULTILINE))


def main():
    server = Server()
    try:
        keys = {**configuration(server, "e2b"), **configuration(server, "daytona")}
        return subprocess.run(sys.argv[1:], env={**os.environ, **keys}, check=False).returncode
    finally:
        server.close()


if __name__ == "__main__":
    sys.exit(main())
