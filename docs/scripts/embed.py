#!/usr/bin/env python3
"""Packs the built book for the binary: from docs/.vitepress/dist to docs/.vitepress/embedded.

Text is stored compressed only; the server decompresses it for the few clients that do not accept gzip. Fails on what the
server's content security policy refuses: inline scripts, evaluated ones, inline styles, and requests to other servers.
"""

import gzip
import pathlib
import re
import shutil
import sys

BOOK = pathlib.Path(__file__).resolve().parent.parent / ".vitepress"
BUILT, EMBEDDED = BOOK / "dist", BOOK / "embedded"
TEXT = {".html", ".js", ".css", ".json", ".svg"}
LEFT_OUT = {"hashmap.json"}
REFUSED = {
    ".html": (r"<script(?![^>]* src=)", r"<style", r"<[a-z][^<>]* style=", r"<[a-z][^<>]* on\w+=",
              r"<(?:script|link|img)[^>]* (?:src|href)=\"(?!/docs/|data:)"),
    # How VitePress marks a function of the configuration, which the page would evaluate.
    ".js": (r"_vp-fn_",),
    ".css": (r"@import", r"url\((?![\"']?(?:data:|/docs/))"),
}


def problems(path, text):
    """Returns what the policy refuses in a file."""
    for pattern in REFUSED.get(path.suffix, ()):
        if found := re.search(pattern, text):
            yield f"{path.relative_to(BUILT)}: {text[found.start():found.start() + 120]!r}"


def main():
    if not BUILT.exists():
        sys.exit("embed: the book is not built; run `make docs`")
    shutil.rmtree(EMBEDDED, ignore_errors=True)
    wrong, size = [], 0
    for path in sorted(path for path in BUILT.rglob("*") if path.is_file() and path.name not in LEFT_OUT):
        target = EMBEDDED / path.relative_to(BUILT)
        target.parent.mkdir(parents=True, exist_ok=True)
        content = path.read_bytes()
        if path.suffix in TEXT:
            wrong += problems(path, content.decode())
            content = gzip.compress(content, 9, mtime=0)
            target = target.with_name(f"{target.name}.gz")
        target.write_bytes(content)
        size += len(content)
    if wrong:
        shutil.rmtree(EMBEDDED)
        sys.exit("embed: the policy of the server refuses these:\n" + "\n".join(wrong))
    print(f"embed: {size / 1e6:.1f} MB")


main()
