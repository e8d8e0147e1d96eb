"""A Python executor for smolagents.

    executor = SteadExecutor(logger=agent_logger)
    agent = CodeAgent(tools=[], model=model, executor=executor)

The interpreter runs in a sandbox and keeps its variables between the steps of the agent. It survives the program that
started it only as a process: another executor starts its own interpreter.
"""

from __future__ import annotations

import json
import posixpath
import shlex
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from smolagents.local_python_executor import CodeOutput
from smolagents.remote_executors import RemotePythonExecutor
from smolagents.utils import AgentError

from .. import Command, ExecEvent, Output, Sandbox, Stead, SteadError
from ._paths import WORKSPACE
from ._sandboxes import create_sandbox_sync, delete_sandbox_sync

_INTERPRETER = "/workspace/.stead-smolagents.py"
# Reads one step as a line of JSON, and answers with one. Programs that the code starts must not read the steps.
_SOURCE = """
import ast, contextlib, io, json, os, sys, traceback

steps = os.fdopen(os.dup(0))
answers = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.dup2(2, 1)
names = {"__name__": "__main__"}
for line in steps:
    logs, answer = io.StringIO(), {}
    try:
        tree = ast.parse(json.loads(line))
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        with contextlib.redirect_stdout(logs):
            exec(compile(tree, "<step>", "exec"), names)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), "<step>", "eval"), names)
                answer["value"] = None if value is None else str(value)
    except BaseException as error:
        answer["error"] = type(error).__name__
        answer["value"] = str(getattr(error, "value", error))
        answer["traceback"] = traceback.format_exc()
    answer["logs"] = logs.getvalue()
    answers.write(json.dumps(answer) + "\\n")
    answers.flush()
"""


class SteadExecutor(RemotePythonExecutor):
    """Runs Python code in a sandbox, which `cleanup` deletes if this object created it."""

    def __init__(
        self,
        additional_imports: list[str] | None = None,
        logger: Any = None,
        allow_pickle: bool = False,
        *,
        sandbox: Sandbox | None = None,
        **settings: Any,
    ) -> None:
        """`settings` are those of `sandboxes.create`, unless a `sandbox` is given."""
        super().__init__(additional_imports or [], logger, allow_pickle)
        self._client: Stead | None = None
        if sandbox is None:
            self._client = Stead.connect()
            sandbox = create_sandbox_sync(self._client, settings)
        self._sandbox = sandbox
        self._command: Command | None = None
        self._events: Iterator[ExecEvent] | None = None
        self._unread = b""
        self.installed_packages = self.install_packages(self.additional_imports)

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        if code.startswith("!"):
            result = self._sandbox.exec(code[1:])
            if not result.ok:
                raise AgentError(f"{result.stdout}{result.stderr}", self.logger)
            return CodeOutput(output=None, logs=result.stdout, is_final_answer=False)
        answer = self._ask(code)
        if "error" not in answer:
            return CodeOutput(output=answer.get("value"), logs=answer["logs"], is_final_answer=False)
        if answer["error"] == self.FINAL_ANSWER_EXCEPTION:
            value = self._deserialize_final_answer(answer["value"], self.allow_pickle)
            return CodeOutput(output=value, logs=answer["logs"], is_final_answer=True)
        raise AgentError(f"{answer['logs']}\n{answer['traceback']}", self.logger)

    def install_packages(self, additional_imports: list[str]) -> list[str]:
        """Installs packages, some of which tools only may need. Code that needs a missing one reports that itself."""
        if additional_imports:
            pip = f"python3 -m pip install --break-system-packages --quiet {shlex.join(additional_imports)}"
            result = self._sandbox.exec(pip)
            self.logger.log(f"{result.stdout}{result.stderr}")
        return additional_imports

    def _ask(self, code: str) -> dict[str, Any]:
        if self._command is None or self._events is None:
            self._sandbox.files.write(_INTERPRETER, _SOURCE)
            terminal = self._sandbox.terminals.create(cwd=WORKSPACE)
            self._command = terminal.start(f"python3 -u {posixpath.basename(_INTERPRETER)}", open_stdin=True)
            self._events = iter(self._command)
        self._command.write_stdin(json.dumps(code) + "\n")
        while b"\n" not in self._unread:
            event = next(self._events, None)
            if event is None:
                self._command = self._events = None
                raise AgentError("the interpreter ended", self.logger)
            if isinstance(event, Output) and event.stream == "stdout":
                self._unread += event.data
        line, _, self._unread = self._unread.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def cleanup(self) -> None:
        """Ends the interpreter, and deletes the sandbox if this object created it."""
        with suppress(SteadError):
            if self._client is not None:
                delete_sandbox_sync(self._client, self._sandbox)
            elif self._command is not None:
                self._command.cancel()
        if self._client is not None:
            self._client.close()
