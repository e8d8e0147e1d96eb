"""A code agent of smolagents whose Python runs in a sandbox, with a scripted model."""

from __future__ import annotations

from typing import Any

from smolagents import CodeAgent
from smolagents.models import ChatMessage, MessageRole, Model
from smolagents.monitoring import AgentLogger, LogLevel

from stead import Stead
from stead.adapters.smolagents import SteadExecutor


class ScriptedModel(Model):
    """Stands in for a model: answers with one step after another."""

    steps = iter(["total = sum(range(5))\nprint(total)", "final_answer(total * 2)"])

    def generate(self, messages: list[Any], **_: Any) -> ChatMessage:
        code = f"Thought: continue.\n<code>\n{next(self.steps)}\n</code>"
        return ChatMessage(role=MessageRole.ASSISTANT, content=code)


def main() -> None:
    # The tool `final_answer` installs two packages that it does not use; this example needs no network.
    with Stead.connect() as client, client.sandboxes.create(env={"PIP_NO_INDEX": "1"}) as sandbox:
        for package in ("numpy", "PIL"):
            sandbox.files.write(f"/workspace/{package}/__init__.py", "")
        logger = AgentLogger(level=LogLevel.OFF)
        executor = SteadExecutor(logger=logger, sandbox=sandbox)
        agent = CodeAgent(tools=[], model=ScriptedModel(), executor=executor, verbosity_level=LogLevel.OFF)
        print("the agent answers", agent.run("Add the numbers below five, twice."))
        sandbox.exec("rm -r numpy PIL")


if __name__ == "__main__":
    main()
