"""A client of MCP: what Claude Code, Codex or Cursor do after `stead mcp install`.

The client starts `stead mcp`, which connects it to the server. The shell keeps its state between the calls, a long
command keeps running while the client does something else, and a person is asked with a tool like any other.
"""

from __future__ import annotations

import asyncio
import os
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from stead import Stead

THREAD = "example-mcp"
PROGRAM = os.environ.get("STEAD_BIN", "stead")


def answer_as_a_person(client: Stead) -> None:
    """Answers the question of the agent, as a person does in the web app or with `stead handoff answer`."""
    for event in client.events(after=0):
        if event.type == "handoff_opened" and event.data["thread_id"] == THREAD:
            client.handoffs.answer(event.data["handoff_id"], option="main")
            return


async def main() -> None:
    parameters = StdioServerParameters(command=PROGRAM, args=["mcp", "--thread", THREAD], env=dict(os.environ))
    async with stdio_client(parameters) as (reader, writer), ClientSession(reader, writer) as session:
        await session.initialize()
        tools = await session.list_tools()
        print("tools:", len(tools.tools))

        async def call(tool: str, **arguments: object) -> dict[str, object]:
            result = await session.call_tool(tool, arguments)
            assert not result.is_error, result
            return result.structured_content or {}

        await call("exec", command="cd /tmp && greeting=hello")
        print("the shell kept:", (await call("exec", command="echo $greeting from $PWD"))["stdout"], end="")

        long = await call("exec", command="sleep 1; echo built", yield_ms=1)
        print("the long command is", long["status"])
        output = await call("command_output", command_id=long["command_id"], wait_ms=30_000)
        print("its output:", output["data"], end="")

        with Stead.connect() as client:
            person = asyncio.to_thread(answer_as_a_person, client)
            asked = call("ask_person", reason="Which branch do I build?", options=["main", "dev"])
            answered, _ = await asyncio.gather(asked, person)
            print("the person chose:", answered["option"])
            client.thread(THREAD).delete()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
