"""Packages for PyPI and npm: those that carry the binary, and the clients."""

import base64
import hashlib
import io
import json
import re
import shutil
import stat
import sys
import tomllib
import zipfile

from .contents import NODE, PACKAGING, ROOT, SUMMARY, package_url, requirement, run, squeeze
from .packages import tar

SKIPPED = shutil.ignore_patterns("node_modules", "dist", "build", "__pycache__", ".*")
# Zip files know no time before 1980.
EARLIEST_ZIP_TIME = 315_532_800


def wheel(release):
    """Builds a wheel with the binary, for `uvx stead` and `pip install stead`."""
    # The binary is static, so it needs no C library at all.
    tags = [f"manylinux_2_17_{release.machine}", f"musllinux_1_1_{release.machine}"]
    info = f"stead-{release.version}.dist-info"
    metadata = (
        f"Metadata-Version: 2.4\nName: stead\nVersion: {release.version}\nSummary: {SUMMARY}\n"
        "License-Expression: Apache-2.0\nLicense-File: LICENSE\nLicense-File: NOTICES\n"
    )
    described = "Wheel-Version: 1.0\nGenerator: stead\nRoot-Is-Purelib: false\n"
    described += "".join(f"Tag: py3-none-{tag}\n" for tag in tags)
    files = {
        f"stead-{release.version}.data/scripts/stead": release.binary.read_bytes(),
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": described.encode(),
        f"{info}/licenses/LICENSE": (ROOT / "LICENSE").read_bytes(),
        f"{info}/licenses/NOTICES": release.notices(),
    }
    records = []
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        records.append(f"{name},sha256={digest},{len(content)}")
    files[f"{info}/RECORD"] = "\n".join([*records, f"{info}/RECORD,,", ""]).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (stat.S_IFREG | (0o755 if "/scripts/" in name else 0o644)) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    purl = package_url("pypi", "stead", release.version)
    release.finish(f"stead-{release.version}-py3-none-{'.'.join(tags)}.whl", packed.getvalue(), purl=purl)


def npm(release):
    """Builds the npm packages for `npx stead`: one with the binary, and one that selects it by architecture."""
    common = {"version": release.version, "description": SUMMARY, "license": "Apache-2.0"}
    names = {cpu: f"@stead/cli-linux-{cpu}" for cpu in NODE.values()}
    cpu = NODE[release.machine]
    binary = {"name": names[cpu], **common, "os": ["linux"], "cpu": [cpu], "files": ["stead", "NOTICES"]}
    pack(release, binary, {"stead": release.binary.read_bytes(), "NOTICES": release.notices()}, None)
    launcher = {
        "name": "stead",
        **common,
        "bin": {"stead": "stead.cjs"},
        "files": ["stead.cjs"],
        "os": ["linux"],
        "optionalDependencies": {name: release.version for name in names.values()},
    }
    pack(release, launcher, {"stead.cjs": (PACKAGING / "npm/stead.cjs").read_bytes()}, [])


def pack(release, manifest, files, components):
    """Writes an npm package, as `npm pack` names it."""
    place = release.scratch("npm") / "package"
    place.mkdir()
    texts = {"package.json": (json.dumps(manifest, indent=2) + "\n").encode(), "LICENSE": (ROOT / "LICENSE").read_bytes()}
    for name, content in {**texts, **files}.items():
        (place / name).write_bytes(content)
        (place / name).chmod(0o755 if name.startswith("stead") else 0o644)
    name = f"{manifest['name'].lstrip('@').replace('/', '-')}-{release.version}.tgz"
    purl = package_url("npm", manifest["name"], manifest["version"])
    release.finish(name, squeeze(tar(release, place, "package")), components, purl)


def python_client(release):
    """Builds the wheel of the Python client."""
    place = copy_of(release, "sdk/python")
    environment = {**release.environment, "SOURCE_DATE_EPOCH": str(max(release.epoch, EARLIEST_ZIP_TIME))}
    built = release.scratch("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", built, "."]
    run(*command, cwd=place, env=environment)
    [path] = built.glob("*.whl")
    project = tomllib.loads((place / "pyproject.toml").read_text())["project"]
    needed = [re.fullmatch(r"([A-Za-z0-9._-]+)(.*)", one).groups() for one in project["dependencies"]]
    needed = [requirement("pypi", name, versions) for name, versions in needed]
    release.finish(path.name, path, needed, package_url("pypi", project["name"], project["version"]))


def typescript_client(release):
    """Builds the npm package of the TypeScript client."""
    if not shutil.which("npm"):
        return print("dist: no npm; the TypeScript client is left out")
    place = copy_of(release, "sdk/typescript")
    run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", cwd=place)
    run("npm", "run", "--silent", "build", cwd=place)
    built = release.scratch("pack")
    run("npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", built, cwd=place)
    [path] = built.iterdir()
    manifest = json.loads((place / "package.json").read_text())
    release.finish(path.name, path, [], package_url("npm", manifest["name"], manifest["version"]))


def copy_of(release, folder):
    """Returns a copy of a client, with the licence, so that a build changes nothing in the checkout."""
    place = release.scratch("client") / "client"
    shutil.copytree(ROOT / folder, place, ignore=SKIPPED)
    shutil.copyfile(ROOT / "LICENSE", place / "LICENSE")
    release.settle(place)
    return place
