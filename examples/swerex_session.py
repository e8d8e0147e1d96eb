"""A session of SWE-ReX, the runtime of SWE-agent, in a sandbox, with the commands of a scripted agent."""

from __future__ import annotations

import asyncio
import logging

from swerex.runtime.abstract import BashAction, CreateBashSessionRequest, WriteFileRequest

from stead.adapters.swerex import SteadDeployment

# Stands in for an agent that repairs a program.
COMMANDS = [
    "cd /workspace/repo && export PYTHONDONTWRITEBYTECODE=1",
    "python3 test.py 2>&1 | tail -1",
    "sed -i 's/a - b/a + b/' add.py",
    "python3 test.py && echo the test passes",
]


async def main() -> None:
    # The logger of SWE-ReX writes to standard output.
    deployment = SteadDeployment(logger=logging.getLogger(__name__))
    await deployment.start()
    runtime = deployment.runtime
    await runtime.write_file(WriteFileRequest(path="/workspace/repo/add.py", content="def add(a, b): return a - b\n"))
    test = "from add import add\nassert add(1, 2) == 3, 'one and two are three'\n"
    await runtime.write_file(WriteFileRequest(path="/workspace/repo/test.py", content=test))
    await runtime.create_session(CreateBashSessionRequest())
    for command in COMMANDS:
        print((await runtime.run_in_session(BashAction(command=command, timeout=60))).output, end="")
    await deployment.stop()


if __name__ == "__main__":
    asyncio.run(main())
