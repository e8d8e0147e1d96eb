"""The body of an exec request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._wire import given, milliseconds


def exec_body(
    command: str,
    timeout: float | None,
    stdin: str | None,
    env: Mapping[str, str] | None,
    cwd: str | None,
    max_output_bytes: int | None,
    if_busy: str | None,
    resume: bool | None,
) -> dict[str, Any]:
    return given(
        command=command,
        timeout_ms=milliseconds(timeout),
        stdin=stdin,
        env=dict(env) if env else None,
        cwd=cwd,
        max_output_bytes=max_output_bytes,
        if_busy=if_busy,
        resume=resume,
    )
