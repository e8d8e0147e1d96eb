"""What a release consists of: its binary, its version, the third-party software in it."""

import gzip
import hashlib
import json
import os
import pathlib
import platform
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PACKAGING = ROOT / "packaging"
SUMMARY = "Durable terminals and sandboxes for AI agents, behind one HTTP API"
# Architectures by their number in ELF files.
MACHINES = {62: "x86_64", 183: "aarch64"}
# The names of architectures for Debian, Go and container images, and for Node.
DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
NODE = {"x86_64": "x64", "aarch64": "arm64"}
PT_INTERP = 3
# What the pages of the book load of the npm packages that build it. Their browser code is what the theme of VitePress imports.
BOOK_PACKAGES = (
    "@vue/reactivity",
    "@vue/runtime-core",
    "@vue/runtime-dom",
    "@vue/shared",
    "@vueuse/core",
    "@vueuse/integrations",
    "@vueuse/shared",
    "focus-trap",
    "mark.js",
    "minisearch",
    "tabbable",
    "vitepress",
)
LICENSE_FILE = re.compile(r"(?i)(licen[cs]e|copying|notice|copyright)")


def run(*command, **options):
    """Runs a program and returns its output; exits with its error output if it fails."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    if done.returncode != 0:
        sys.exit(f"dist: {command[0]} failed:\n{done.stderr.decode(errors='replace')}")
    return done.stdout


def squeeze(content):
    """Returns content compressed, always to the same bytes."""
    return gzip.compress(content, 6, mtime=0)


def machine_of(binary):
    """Returns the architecture of a static ELF executable, and refuses any other file."""
    content = binary.read_bytes()
    if content[:6] != b"\x7fELF\x02\x01":
        sys.exit(f"dist: {binary} is no 64-bit little-endian ELF file")
    number = struct.unpack_from("<H", content, 18)[0]
    if number not in MACHINES:
        sys.exit(f"dist: {binary} is for an architecture that packages do not name (ELF machine {number})")
    start, size, count = struct.unpack_from("<Q", content, 32)[0], *struct.unpack_from("<HH", content, 54)
    if any(struct.unpack_from("<I", content, start + size * index)[0] == PT_INTERP for index in range(count)):
        sys.exit(f"dist: {binary} is linked dynamically")
    return MACHINES[number]


class Release:
    """One release: the binary, and what is known about it."""

    def __init__(self, binary, directory, work):
        self.directory = directory
        self.work = work
        self.machine = machine_of(binary)
        given = os.environ.get("SOURCE_DATE_EPOCH")
        self.epoch = int(given or run("git", "-C", ROOT, "log", "-1", "--format=%ct"))
        # Without the crates of other systems.
        platform_only = f"--filter-platform={self.machine}-unknown-linux-gnu"
        metadata = json.loads(run("cargo", "metadata", "--format-version=1", "--locked", platform_only, cwd=ROOT))
        self._packages = {package["id"]: package for package in metadata["packages"]}
        self._resolved = {node["id"]: node for node in metadata["resolve"]["nodes"]}
        self._root = metadata["resolve"]["root"]
        self.version = self._packages[self._root]["version"]
        self.binary = self._stripped(binary)
        self.components = [*self._runtimes(), *self._crates(), *self._web_packages(), *self._book_packages()]

    @property
    def environment(self):
        return {**os.environ, "SOURCE_DATE_EPOCH": str(self.epoch), "LC_ALL": "C.UTF-8", "TZ": "UTC"}

    def scratch(self, name):
        """Returns an empty directory that is removed after the build."""
        return pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.work))

    def finish(self, name, content, components=None, purl=None):
        """Writes an artefact and its SBOM. By default it contains what is in the binary, and is in no registry."""
        path = self.directory / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            shutil.copyfile(content, path)
        print(f"dist: {name} ({path.stat().st_size / 1e6:.1f} MB)", flush=True)
        purl = purl or package_url("generic", "stead", self.version)
        bom = self._sbom(path, purl, self.components if components is None else components)
        (self.directory / f"{name}.cdx.json").write_text(json.dumps(bom, indent=1) + "\n")

    def _stripped(self, binary):
        """Returns a copy of the binary without symbols, where `strip` knows its architecture."""
        copy = self.scratch("binary") / "stead"
        shutil.copyfile(binary, copy)
        copy.chmod(0o755)
        if shutil.which("strip") and subprocess.run(["strip", str(copy)], stderr=subprocess.DEVNULL).returncode == 0:
            return copy
        print("dist: no strip for this binary; it keeps its symbols")
        return copy

    # Third-party software.

    def _crates(self):
        """Returns the crates in the binary: what the root package needs, except for builds and tests."""
        found, waiting = set(), [self._root]
        while waiting:
            one = waiting.pop()
            if one in found:
                continue
            found.add(one)
            for dependency in self._resolved[one]["deps"]:
                if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                    waiting.append(dependency["pkg"])
        packages = [self._packages[one] for one in found if self._packages[one]["source"] is not None]
        for package in sorted(packages, key=lambda package: (package["name"], package["version"])):
            folder = pathlib.Path(package["manifest_path"]).parent
            yield component("cargo", package["name"], package["version"], package["license"], folder)

    def _web_packages(self):
        """Returns the npm packages whose code is in the web app."""
        lock = json.loads((ROOT / "web/package-lock.json").read_text())
        for path, package in sorted(lock["packages"].items()):
            if path and not package.get("dev"):
                name = path.split("node_modules/")[-1]
                yield component("npm", name, package["version"], package.get("license"), ROOT / "web" / path)

    def _book_packages(self):
        """Returns the npm packages whose code is in the pages of the book."""
        packages = json.loads((ROOT / "docs/package-lock.json").read_text())["packages"]
        for name in BOOK_PACKAGES:
            path = f"node_modules/{name}"
            if path not in packages:
                sys.exit(f"dist: the book no longer uses {name}; correct BOOK_PACKAGES")
            yield component("npm", name, packages[path]["version"], packages[path].get("license"), ROOT / "docs" / path)

    def _runtimes(self):
        """Returns the libraries that the compilers link into the binary."""
        rust = run("rustc", "--version").decode().split()[1]
        texts = pathlib.Path(run("rustc", "--print", "sysroot").decode().strip(), "share/doc/rust/licenses")
        texts = [texts / "MIT.txt", texts / "Apache-2.0.txt"]
        yield component("generic", "rust-std", rust, "MIT OR Apache-2.0", None) | {"texts": texts}
        libc = component("generic", "glibc", platform.libc_ver()[1], "LGPL-2.1-or-later", None)
        yield libc | {"texts": [pathlib.Path("/usr/share/common-licenses/LGPL-2.1")]}

    def notices(self):
        """Returns the licences of the third-party software in the binary."""
        parts = [f"Third-party software in Stead {self.version}\n"]
        for one in self.components:
            parts.append(f"\n{'=' * 80}\n{one['name']} {one['version']}: {one['license'] or 'see below'}\n")
            folder, texts = one["folder"], one.get("texts", [])
            if folder is not None and folder.is_dir():
                texts = sorted(path for path in folder.iterdir() if LICENSE_FILE.match(path.name) and path.is_file())
            for text in texts:
                if text.exists():
                    parts.append(text.read_text(errors="replace"))
                else:
                    print(f"dist: no {text}; the notices have no text of the licence of {one['name']}")
        return "\n".join(parts).encode()

    def _sbom(self, path, purl, components):
        """Returns the description of an artefact as CycloneDX 1.6."""
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        product = {
            "type": "application",
            "bom-ref": path.name,
            "name": path.name,
            "version": self.version,
            "purl": purl,
            "licenses": [{"license": {"id": "Apache-2.0"}}],
            "hashes": [{"alg": "SHA-256", "content": digest}],
        }
        described = []
        for one in components:
            entry = {"type": "library", "bom-ref": one["purl"], "name": one["name"]}
            if one["version"]:
                entry["version"] = one["version"]
            if one["range"]:
                entry["properties"] = [{"name": "stead:required-versions", "value": one["range"]}]
            if one["license"]:
                entry["licenses"] = [{"expression": one["license"]}]
            described.append({**entry, "purl": one["purl"]})
        references = [one["purl"] for one in components]
        return {
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": {"component": product},
            "components": described,
            "dependencies": [{"ref": path.name, "dependsOn": references}],
        }

    # Files of packages.

    def stage(self):
        """Returns a directory with the files that packages install."""
        place = self.scratch("stage")

        def put(name, content, mode=0o644):
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(mode)

        def copy(name, source, mode=0o644):
            put(name, (PACKAGING / source).read_bytes(), mode)

        put("usr/bin/stead", self.binary.read_bytes(), 0o755)
        copy("usr/lib/stead/end", "end", 0o755)
        copy("usr/lib/systemd/system/stead.service", "systemd/stead.service")
        copy("usr/lib/systemd/system/stead-nonroot.service", "systemd/stead-nonroot.service")
        copy("usr/lib/sysusers.d/stead.conf", "systemd/sysusers.conf")
        copy("usr/lib/tmpfiles.d/stead.conf", "systemd/tmpfiles.conf")
        self.documents(place / "usr/share/doc/stead")
        put("usr/share/doc/stead/CHANGELOG.md.gz", squeeze((ROOT / "CHANGELOG.md").read_bytes()))
        put("usr/share/bash-completion/completions/stead", run(self.binary, "completions", "bash"))
        put("usr/share/zsh/vendor-completions/_stead", run(self.binary, "completions", "zsh"))
        put("usr/share/fish/vendor_completions.d/stead.fish", run(self.binary, "completions", "fish"))
        pages = self.scratch("man")
        if subprocess.run([self.binary, "man", pages], stderr=subprocess.DEVNULL).returncode != 0:
            print("dist: this binary writes no manual pages; they are left out")
        for page in sorted(pages.iterdir()):
            put(f"usr/share/man/man1/{page.name}.gz", squeeze(page.read_bytes()))
        self.settle(place)
        return place

    def documents(self, folder):
        """Writes the licence and the notices into a directory."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "copyright").write_bytes((ROOT / "LICENSE").read_bytes())
        (folder / "NOTICES.gz").write_bytes(squeeze(self.notices()))

    def settle(self, place):
        """Gives everything below a directory the time of the release, and directories their usual mode."""
        for path in [*sorted(place.rglob("*"), reverse=True), place]:
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
            os.utime(path, (self.epoch, self.epoch), follow_symlinks=False)


def package_url(kind, name, version=None):
    """Returns the package URL of a package; without a version, that of all its versions."""
    name = urllib.parse.quote(name, safe="/")
    return f"pkg:{kind}/{name}" + (f"@{urllib.parse.quote(version, safe=':')}" if version else "")


def component(kind, name, version, licence, folder):
    # Old manifests separate alternatives by a slash.
    licence = re.sub(r"\s*/\s*", " OR ", licence) if licence else None
    purl = package_url(kind, name, version)
    return {"name": name, "version": version, "range": None, "license": licence, "folder": folder, "purl": purl}


def requirement(kind, name, versions):
    """A package that the installation gets from its registry, in one of a range of versions."""
    return {**component(kind, name, None, None, None), "range": versions}
