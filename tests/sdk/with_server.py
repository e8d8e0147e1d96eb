"""Runs a command against a server of its own: `with_server.py COMMAND…`, with the keys in its environment."""

import os
import subprocess
import sys

from server import Server


def main():
    server = Server()
    keys = {"E2B_API_KEY": server.token, "E2B_API_URL": server.url, "E2B_SANDBOX_URL": server.url}
    keys.update(DAYTONA_API_KEY=server.token, DAYTONA_API_URL=f"{server.url}/daytona")
    try:
        return subprocess.run(sys.argv[1:], env={**os.environ, **keys}, check=False).returncode
    finally:
        server.close()


if __name__ == "__main__":
    sys.exit(main())
