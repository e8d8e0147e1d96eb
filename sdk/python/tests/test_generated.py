"""The generated files and the types agree with their sources."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from stead import Stead, _errors, _models

ROOT = Path(__file__).resolve().parent.parent

# Each model with its schema in the API document, and the fields that only one of them has.
SCHEMAS: list[tuple[type, str, set[str]]] = [
    (_models.ExecResult, "CommandReceipt", set()),
    (_models.CommandInfo, "CommandView", set()),
    # The id under another name, for clients of an older protocol.
    (_models.TerminalInfo, "TerminalView", {"ptyID"}),
    (_models.TerminalState, "TerminalStateView", set()),
    (_models.Version, "VersionView", set()),
    (_models.VersionDetail, "VersionDetail", set()),
    (_models.Screen, "ScreenSnapshot", set()),
    (_models.ThreadInfo, "ThreadView", set()),
    (_models.ThreadSummary, "ThreadRow", set()),
    (_models.ThreadSandbox, "ThreadSandbox", set()),
    (_models.Handoff, "HandoffView", set()),
    (_models.HandoffAnswer, "HandoffAnswerView", set()),
    (_models.Lease, "LeaseView", set()),
    (_models.Instance, "InstanceView", set()),
    (_models.Provider, "ProviderView", set()),
    (_models.FileInfo, "FileStat", set()),
    (_models.WrittenFile, "WrittenFile", set()),
    (_models.Match, "SearchMatch", set()),
    (_models.SearchResult, "SearchMatches", set()),
    (_models.SandboxInfo, "SandboxView", set()),
    (_models.Snapshot, "SnapshotView", set()),
    (_models.PortLink, "PortLink", set()),
]


@pytest.fixture
def schemas(client: Stead) -> dict[str, Any]:
    found: dict[str, Any] = client._http.get("/openapi.json")["components"]["schemas"]
    return found


def test_the_sync_client_is_generated_from_the_async_one() -> None:
    spec = importlib.util.spec_from_file_location("unasync", ROOT / "tools/unasync.py")
    assert spec and spec.loader
    unasync = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(unasync)
    assert unasync.outdated() == [], "run tools/unasync.py"


@pytest.mark.parametrize(("model", "schema", "others"), SCHEMAS, ids=lambda one: getattr(one, "__name__", None))
def test_models_have_the_fields_of_the_api(schemas: dict[str, Any], model: type, schema: str, others: set[str]) -> None:
    described = schemas[schema]
    fields = {one.name: one for one in dataclasses.fields(model)}
    assert fields.keys() ^ described["properties"].keys() == others
    optional = {
        name
        for name, one in fields.items()
        if one.default is not dataclasses.MISSING or one.default_factory is not dataclasses.MISSING
    }
    assert optional == described["properties"].keys() - set(described.get("required", [])) - others


def test_every_code_of_the_server_has_a_class(schemas: dict[str, Any]) -> None:
    assert set(schemas["Code"]["enum"]) == set(_errors.BY_CODE)
