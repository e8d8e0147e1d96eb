"""An agent without a framework: a loop that runs what the model asks for, in one durable shell.

The shell keeps its directory and its variables between the calls. If this program is killed, the next run with the same
thread continues in the same shell.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stead import Stead, Thread

TASK = "Count the lines of the longest Python file in /workspace."


def scripted_model() -> Iterator[dict[str, Any]]:
    """Stands in for a model: yields one message for each call, as a chat API would."""
    yield {"tool": "shell", "command": "mkdir -p demo && cd demo && seq 3 > a.py && seq 7 > b.py && pwd"}
    yield {"tool": "shell", "command": "longest=$(wc -l *.py | grep -v total | sort -n | tail -1); echo $longest"}
    yield {"tool": "shell", "command": "echo ${longest% *} > answer; cat answer"}
    yield {"answer": "The longest file has 7 lines."}


def shell(thread: Thread, command: str) -> str:
    """The tool: runs a command and returns what the model should see of it."""
    result = thread.exec(command, timeout=60)
    report = result.stdout + result.stderr
    return report if result.ok else f"{report}[{result.status}, exit code {result.exit_code}]\n"


def main() -> None:
    with Stead.connect() as client:
        thread = client.thread("example-loop")
        history: list[dict[str, Any]] = [{"role": "user", "content": TASK}]
        for message in scripted_model():
            history.append({"role": "assistant", "content": message})
            if "answer" in message:
                print(message["answer"])
                break
            output = shell(thread, message["command"])
            history.append({"role": "tool", "content": output})
            print(f"$ {message['command']}\n{output}", end="")
        thread.delete()


if __name__ == "__main__":
    main()
