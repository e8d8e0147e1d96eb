"""Checks the SBOM of every artefact of a release.

    boms.py DIRECTORY
"""

import gzip
import hashlib
import json
import pathlib
import re
import sys
import tarfile

# https://github.com/package-url/purl-spec: type, namespace, name and version, percent-encoded.
NAME = r"(?:[A-Za-z0-9._~-]|%[0-9A-F]{2})+"
PURL = re.compile(rf"pkg:[a-z][a-z0-9.-]*/(?:{NAME}/)*{NAME}(?:@(?:[A-Za-z0-9._~:-]|%[0-9A-F]{{2}})+)?")
# No files of a release that something is installed from.
OTHERS = {"SHA256SUMS", "install.sh", "RELEASE-NOTES.md"}
# Of each part of the binary one that it certainly contains, and crates of other systems.
PARTS = {"glibc", "rust-std", "tokio", "rusqlite", "@xterm/xterm", "preact", "vitepress", "@vue/runtime-core", "minisearch"}
FOREIGN = re.compile(r"windows|winapi|wasi|objc|core-foundation|android|js-sys|web-sys|wasm")


def check(artefact, bom):
    """Yields what is wrong with an SBOM."""
    if (bom["bomFormat"], bom["specVersion"]) != ("CycloneDX", "1.6"):
        yield "is not CycloneDX 1.6"
    product = bom["metadata"]["component"]
    [digest] = product["hashes"]
    if digest != {"alg": "SHA-256", "content": hashlib.sha256(artefact.read_bytes()).hexdigest()}:
        yield "describes another file"
    components = bom["components"]
    references = [one["bom-ref"] for one in components]
    for reference in {one for one in references if references.count(one) > 1}:
        yield f"has {reference} twice"
    for one in [product, *components]:
        if not PURL.fullmatch(one["purl"]):
            yield f"has no package URL: {one['purl']}"
        for licence in one.get("licenses", []):
            if not re.fullmatch(r"[A-Za-z0-9.+() -]+", licence.get("expression") or licence["license"]["id"]):
                yield f"has no SPDX expression: {licence}"
    [depends] = bom["dependencies"]
    if depends != {"ref": product["bom-ref"], "dependsOn": references}:
        yield "does not list what its artefact depends on"
    for name in sorted(one["name"] for one in components if FOREIGN.search(one["name"])):
        yield f"lists {name}, which is not for Linux"


def main():
    directory = pathlib.Path(sys.argv[1])
    files = sorted(path for path in directory.iterdir() if path.name not in OTHERS)
    artefacts = [path for path in files if not path.name.endswith(".cdx.json")]
    boms = {path.name.removesuffix(".cdx.json"): json.loads(path.read_text()) for path in files if path not in artefacts}
    assert boms.keys() == {path.name for path in artefacts}, "each artefact has one SBOM"
    wrong = [f"{path.name}.cdx.json {problem}" for path in artefacts for problem in check(path, boms[path.name])]
    [tarball] = directory.glob("stead-*-linux-*.tar.gz")
    inside = boms[tarball.name]["components"]
    if missing := PARTS - {one["name"] for one in inside}:
        wrong.append(f"{tarball.name}.cdx.json lacks {', '.join(sorted(missing))}")
    with tarfile.open(tarball) as archive:
        [notices] = [name for name in archive.getnames() if name.endswith("/NOTICES.gz")]
        text = gzip.decompress(archive.extractfile(notices).read()).decode()
    for one in inside:
        if f"\n{one['name']} {one['version']}: " not in text:
            wrong.append(f"the notices lack {one['name']} {one['version']}")
    texts = dict.fromkeys(("vitepress", "minisearch", "@vue/runtime-core", "tokio", "rust-std"), "Permission is hereby granted")
    for name, words in {**texts, "glibc": "GNU LESSER GENERAL PUBLIC LICENSE"}.items():
        section = text.split(f"\n{name} ")[1].split("\n=====")[0]
        if words.lower() not in section.lower():
            wrong.append(f"the notices have no text of the licence of {name}")
    if wrong:
        sys.exit("\n".join(wrong))


main()
