#!/usr/bin/env python3
"""Prints what is new in a version, from CHANGELOG.md.

    packaging/release/notes.py VERSION|Unreleased

A version is a section `## 1.2.3`, with or without a date after it. Before a version is tagged, its section is called
Unreleased. Fails if there is no such section, or if it is empty.
"""

import pathlib
import re
import sys

CHANGELOG = pathlib.Path(__file__).resolve().parent.parent.parent / "CHANGELOG.md"
UNRELEASED = "Unreleased"
HEADING = re.compile(r"^## \[?([^\]\s]+)\]?(.*)$", re.MULTILINE)


def sections(text):
    """Returns the text of each version, the newest first."""
    found = list(HEADING.finditer(text))
    ends = [heading.start() for heading in found[1:]] + [len(text)]
    return {heading[1]: text[heading.end() : end].strip() for heading, end in zip(found, ends, strict=True)}


def notes(text, version):
    """Returns the release notes of a version; raises ValueError if there are none."""
    known = sections(text)
    if version not in known:
        raise ValueError(f"CHANGELOG.md has no section {version}, only {', '.join(known)}")
    if not known[version]:
        raise ValueError(f"the section {version} of CHANGELOG.md is empty")
    title = "Stead, not released yet" if version == UNRELEASED else f"Stead {version}"
    return f"# {title}\n\n{known[version]}\n"


def notes_of_build(text, version):
    """Returns the notes of the version, or of what is not released yet if the version has none."""
    return notes(text, version if version in sections(text) else UNRELEASED)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        print(notes(CHANGELOG.read_text(), sys.argv[1]), end="")
    except ValueError as error:
        sys.exit(f"notes: {error}")
