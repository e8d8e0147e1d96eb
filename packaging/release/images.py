"""Container images as OCI archives, built without a container engine.

Each has two layers: a small Debian, because shells need programs, and the binary. `mmdebstrap` makes the first one from
the packages of a mirror; as long as the mirror has the same packages, it has the same bytes.
"""

import datetime
import fnmatch
import hashlib
import io
import json
import os
import re
import shutil
import tarfile

from .contents import DEBIAN, component, run, squeeze
from .packages import tar

SUITE = "trixie"
STATUS = "var/lib/dpkg/status"
# What package managers leave outside the files of their packages.
PACKAGE_LISTS = "/(etc|var/lib|var/cache|usr/lib)/(apt|dpkg|debconf)/."
USER = 1000
HOME = "/var/lib/stead"
COMMON = "bash,ca-certificates,tini"
# Packages that only install packages. A user who is not root cannot use them, and sandboxes can.
MANAGERS = ["apt", "debconf", "debian-archive-keyring", "dpkg", "openssl*", "passwd", "perl-base", "sqv"]
MANAGERS += ["libapt-pkg*", "libhogweed*", "libnettle*", "libstdc++*"]
# A name for the file, Debian packages, those that are removed, the user, and variables of the environment.
VARIANTS = [
    ("nonroot", COMMON, MANAGERS, f"{USER}:{USER}", ["STEAD_PROVIDER=local"]),
    # Threads fail with the reason, instead of running without isolation, if the container lacks privileges.
    ("sandboxes", f"{COMMON},e2fsprogs,iproute2,nftables,passt", [], "0:0", ["STEAD_PROVIDER=namespace"]),
]
# Documentation and translations, except licences.
EXCLUDED = ["/usr/share/doc/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/man/*"]


def mirror():
    """Returns the Debian mirror of this machine, or of STEAD_DEBIAN_MIRROR."""
    given = os.environ.get("STEAD_DEBIAN_MIRROR")
    if given or not shutil.which("apt-get"):
        return given
    targets = run("apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)").decode().splitlines()
    found = [line.split("|")[2] for line in targets if line.startswith("Debian|Debian|")]
    return found[0] if found else None


def images(release):
    source = mirror()
    if not shutil.which("mmdebstrap") or source is None:
        return print("dist: no mmdebstrap or no Debian mirror; the container images are left out")
    for variant in VARIANTS:
        image(release, source, *variant)


def base(release, source, packages):
    """Returns the Debian layer as a tar archive."""
    place = release.scratch("base")
    options = ["--dpkgopt=path-include=/usr/share/doc/*/copyright"]
    options = [f"--dpkgopt=path-exclude={path}" for path in EXCLUDED] + options
    hooks = [
        f'chroot "$1" useradd --uid {USER} --home-dir {HOME} --no-create-home --shell /bin/bash stead',
        # The mirror of the machine that built the image is no business of its users.
        'rm -rf "$1/etc/apt/sources.list" "$1"/etc/passwd- "$1"/etc/group- "$1"/etc/shadow- "$1"/etc/gshadow-',
        'rm -rf "$1"/var/cache/ldconfig/aux-cache "$1"/var/log/*',
    ]
    options += [f"--customize-hook={hook}" for hook in hooks]
    architecture = f"--architectures={DEBIAN[release.machine]}"
    command = ["mmdebstrap", "--quiet", "--variant=minbase", architecture, f"--include={packages}", *options]
    run(*command, SUITE, place / "base.tar", source, env=release.environment)
    return (place / "base.tar").read_bytes()


def paragraphs(status):
    """Returns the paragraphs of dpkg's status file, with the name and the version of each package."""
    for paragraph in status.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line and line[0] != " ")
        yield fields["Package"], fields["Version"], paragraph


def without(layer, patterns):
    """Returns a Debian layer without the files of some packages, and a list of the packages that are left."""
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        kept, status = [], []
        known = list(paragraphs(archive.extractfile(f"./{STATUS}").read().decode()))
        for name, version, paragraph in known:
            if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
                kept.append(component("deb/debian", name, version, None, None))
                status.append(paragraph)
        if not patterns:
            return layer, kept
        left, removed = set(), set()
        for entry in archive:
            if match := re.fullmatch(r"\./var/lib/dpkg/info/([^:]+)(:.*)?\.list", entry.name):
                listed = archive.extractfile(entry).read().decode().splitlines()
                gone = any(fnmatch.fnmatch(match[1], pattern) for pattern in patterns)
                # `/bin` and the like are links into `/usr`.
                (removed if gone else left).update(re.sub("^/(bin|sbin|lib|lib64)/", r"/usr/\1/", one) for one in listed)
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w", format=tarfile.GNU_FORMAT) as smaller:
            for entry in archive:
                name = entry.name.removeprefix(".")
                if name == f"/{STATUS}":
                    text = ("\n\n".join(status) + "\n\n").encode()
                    entry.size = len(text)
                    smaller.addfile(entry, io.BytesIO(text))
                elif name not in removed - left and not re.match(PACKAGE_LISTS, name):
                    smaller.addfile(entry, archive.extractfile(entry) if entry.isreg() else None)
    return content.getvalue(), kept


def image(release, source, variant, packages, removed, user, environment):
    debian, debian_packages = without(base(release, source, packages), removed)
    place = release.scratch("image") / "layer"
    (place / "usr/bin").mkdir(parents=True)
    (place / HOME[1:]).mkdir(parents=True)
    shutil.copy(release.binary, place / "usr/bin/stead")
    release.documents(place / "usr/share/doc/stead")
    release.settle(place)
    (place / HOME[1:]).chmod(0o700)
    owner = int(user.split(":")[0])
    layers = [debian, tar(release, place, "", {HOME[1:]: owner})]
    blobs = {}

    def blob(content, kind):
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

    def as_json(value):
        return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()

    created = datetime.datetime.fromtimestamp(release.epoch, datetime.UTC)
    configuration = {
        "created": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "architecture": DEBIAN[release.machine],
        "os": "linux",
        "config": {
            "User": user,
            # Hosts outlive the server, so something else has to wait for the processes that they leave.
            "Entrypoint": ["/usr/bin/tini", "--", "/usr/bin/stead"],
            "Cmd": ["serve"],
            "WorkingDir": HOME,
            "Volumes": {HOME: {}},
            "ExposedPorts": {"7832/tcp": {}},
            # A port is published by the engine or a proxy, who decide which clients reach it.
            "Env": [
                "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                f"STEAD_HOME={HOME}",
                "STEAD_LISTEN=0.0.0.0:7832",
                "STEAD_BEHIND_PROXY=true",
                # The names of a port that is published on loopback.
                "STEAD_NAMES=localhost,127.0.0.1",
                *environment,
            ],
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(one).hexdigest()}" for one in layers]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(as_json(configuration), "config.v1+json"),
        "layers": [blob(squeeze(one), "layer.v1.tar+gzip") for one in layers],
    }
    described = blob(as_json(manifest), "manifest.v1+json")
    described["annotations"] = {"org.opencontainers.image.ref.name": f"stead:{release.version}-{variant}"}
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [described]}
    layout = release.scratch("layout") / "layout"
    (layout / "blobs/sha256").mkdir(parents=True)
    (layout / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    (layout / "index.json").write_bytes(as_json(index))
    for digest, content in blobs.items():
        (layout / "blobs/sha256" / digest).write_bytes(content)
    release.settle(layout)
    name = f"stead-{release.version}-image-{variant}-{DEBIAN[release.machine]}.tar"
    release.finish(name, tar(release, layout, ""), [*release.components, *debian_packages])
