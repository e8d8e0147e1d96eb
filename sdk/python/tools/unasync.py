"""Generates `src/stead/_sync` from `src/stead/_async`, so that each call is written once.

python tools/unasync.py            writes the files
python tools/unasync.py --check    fails if they are not up to date
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src/stead/_async"
TARGET = SOURCE.parent / "_sync"

RULES = [
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\basyncio\b", "time"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\ba(iter|next|close|read|iter_raw)\b(?=\()", r"\1"),
    (r"\bhandle_async_request\b", "handle_request"),
    (r"\b_async\b", "_sync"),
]


def to_sync(text: str) -> str:
    for pattern, replacement in RULES:
        text = re.sub(pattern, replacement, text)
    return text


def generated() -> dict[str, str]:
    """Returns the text of each generated file by its name."""
    files = {}
    for path in sorted(SOURCE.glob("*.py")):
        note = f"# Generated from _async/{path.name} by tools/unasync.py. Do not edit.\n"
        files[path.name] = note + to_sync(path.read_text(encoding="utf-8"))
    return files


def outdated() -> list[str]:
    """Returns the names of the generated files that are missing, superfluous or not up to date."""
    found = {path.name: path.read_text(encoding="utf-8") for path in TARGET.glob("*.py")}
    wanted = generated()
    return sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))


def main() -> int:
    if sys.argv[1:] == ["--check"]:
        names = outdated()
        if names:
            print(f"not up to date, run tools/unasync.py: {', '.join(names)}", file=sys.stderr)
        return 1 if names else 0
    TARGET.mkdir(exist_ok=True)
    for name in outdated():
        (TARGET / name).unlink(missing_ok=True)
    for name, text in generated().items():
        (TARGET / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
