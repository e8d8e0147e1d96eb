"""LangChain's deepagents in a sandbox, with a scripted model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepagents import create_deep_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage

from stead import Stead
from stead.adapters.langchain import SteadSandbox


class ScriptedModel(GenericFakeChatModel):
    """Stands in for a model that can call tools."""

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> ScriptedModel:  # type: ignore[override]
        return self


def call(name: str, **arguments: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"id": f"call-{name}", "name": name, "args": arguments}])


SCRIPT = [
    call("write_file", file_path="/workspace/squares.py", content="print([n * n for n in range(4)])\n"),
    call("execute", command="cd /workspace && python3 squares.py"),
    call("edit_file", file_path="/workspace/squares.py", old_string="range(4)", new_string="range(6)"),
    call("execute", command="python3 squares.py"),
    AIMessage("The squares are in order."),
]


def main() -> None:
    with Stead.connect() as client, client.sandboxes.create() as sandbox:
        agent = create_deep_agent(model=ScriptedModel(messages=iter(SCRIPT)), backend=SteadSandbox(sandbox))
        result = agent.invoke({"messages": [{"role": "user", "content": "Print some squares."}]})
        for message in result["messages"]:
            if isinstance(message, ToolMessage) and message.name == "execute":
                print(message.text.splitlines()[0])
        print(result["messages"][-1].text)


if __name__ == "__main__":
    main()
