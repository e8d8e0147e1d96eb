"""The examples of the documentation, run against a real server."""

from __future__ import annotations

import ast
import asyncio
import builtins
import doctest
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import ROOT, Server

import stead
from stead import AsyncStead, Stead

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PAGES = [ROOT / "sdk/python/README.md", ROOT / "docs/python.md"]
NAMES = {name: getattr(stead, name) for name in stead.__all__}


def examples(*, is_async: bool) -> list[Any]:
    """Returns each docstring with examples as a parameter."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    packages = [stead, importlib.import_module("stead._async"), importlib.import_module("stead._sync")]
    modules = [
        importlib.import_module(name)
        for package in packages
        for name in [
            package.__name__,
            *(one.name for one in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")),
        ]
    ]
    tests = {test.name: test for module in modules for test in finder.find(module) if test.examples}
    return [pytest.param(test, id=name) for name, test in tests.items() if ("_async" in name) == is_async]


@pytest.fixture
def environment(server: Server, client: Stead, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    monkeypatch.setenv("STEAD_URL", server.url)
    monkeypatch.setenv("STEAD_TOKEN", server.token)
    client.thread("docs").exec("true")
    yield {**NAMES, "client": client}


def run(test: doctest.DocTest, names: dict[str, Any]) -> None:
    test.globs = {**test.globs, **names}
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    runner.run(test, out=report.append)
    assert runner.failures == 0, "".join(report)


@pytest.mark.parametrize("test", examples(is_async=False))
def test_examples_work(test: doctest.DocTest, environment: dict[str, Any]) -> None:
    run(test, environment)


@pytest.mark.parametrize("test", examples(is_async=True))
def test_async_examples_work(
    test: doctest.DocTest, server: Server, environment: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Examples await at the top level, as in `python -m asyncio`."""
    loop = asyncio.new_event_loop()

    def compile_async(code: str, name: str, mode: str, flags: int, inherit: bool) -> Any:
        return builtins.compile(code, name, mode, flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, inherit)

    def exec_async(code: types.CodeType, names: dict[str, Any]) -> None:
        result = types.FunctionType(code, names)()
        if inspect.iscoroutine(result):
            loop.run_until_complete(result)

    # `doctest` finds these names in its module before the built-in ones.
    monkeypatch.setattr(doctest, "compile", compile_async, raising=False)
    monkeypatch.setattr(doctest, "exec", exec_async, raising=False)
    client = AsyncStead(server.url, server.token)
    try:
        run(test, {**environment, "client": client})
        loop.run_until_complete(client.aclose())
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


def page_examples() -> list[Any]:
    """Returns each Python block of the pages as a parameter."""
    blocks = []
    for page in PAGES:
        found = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        assert found, f"{page} has no examples"
        blocks += [pytest.param(text, id=f"{page.stem}-{number}") for number, text in enumerate(found, 1)]
    return blocks


@pytest.mark.parametrize("text", page_examples())
def test_programs_of_the_pages_run(text: str, environment: dict[str, Any], tmp_path: Path) -> None:
    """Each block is a whole program. Comments after `print` say what it prints, line by line."""
    done = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    comments = re.findall(r"print\(.*# (.*)$", text, re.MULTILINE)
    assert done.stdout.splitlines() == [line for comment in comments for line in comment.split(" / ")]


def test_the_quick_start_has_at_most_ten_lines() -> None:
    text = PAGES[0].read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    assert len(text.splitlines()) <= 10
