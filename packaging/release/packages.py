"""The tarball, the `.deb`, the `.rpm` and the Helm chart."""

import hashlib
import io
import shutil
import sys
import tarfile

from .contents import DEBIAN, PACKAGING, ROOT, SUMMARY, run, squeeze

# What sandboxes need at run time; everything else is in the binary.
DEBIAN_RECOMMENDS = "nftables, e2fsprogs, iproute2, passt"


def tar(release, place, prefix, owners=None):
    """Returns a directory as a tar archive. Files belong to root unless `owners` maps their name to a user id."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(place.rglob("*")):
            inner = path.relative_to(place).as_posix()
            entry = archive.gettarinfo(path, f"{prefix}/{inner}" if prefix else inner)
            entry.uid = entry.gid = (owners or {}).get(inner, 0)
            entry.uname = entry.gname = ""
            entry.mtime = release.epoch
            if entry.isreg():
                with path.open("rb") as file:
                    archive.addfile(entry, file)
            else:
                archive.addfile(entry)
    return content.getvalue()


def tarball(release, stage):
    name = f"stead-{release.version}-linux-{release.machine}"
    release.finish(f"{name}.tar.gz", squeeze(tar(release, stage, name)))


def deb(release, stage):
    if not shutil.which("dpkg-deb"):
        return print("dist: no dpkg-deb; the .deb is left out")
    architecture = DEBIAN[release.machine]
    root = release.scratch("deb") / "root"
    shutil.copytree(stage, root)
    files = [path for path in sorted(root.rglob("*")) if path.is_file()]
    size = sum(path.stat().st_size for path in files) // 1024
    sums = [f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(root)}\n" for path in files]
    control = root / "DEBIAN"
    shutil.copytree(PACKAGING / "deb", control)
    (control / "md5sums").write_text("".join(sums))
    (control / "control").write_text(
        f"Package: stead\nVersion: {release.version}\nArchitecture: {architecture}\nSection: admin\n"
        "Priority: optional\nMaintainer: Stead maintainers <maintainers@stead.invalid>\n"
        f"Installed-Size: {size}\nDepends: passwd\nRecommends: {DEBIAN_RECOMMENDS}\nDescription: {SUMMARY}\n"
        " Shells that outlive their clients and their server, shared by agents and people,\n"
        " with sandboxes and a web app in one static binary.\n"
    )
    release.settle(root)
    for path in control.iterdir():
        path.chmod(0o755 if path.suffix == "" and path.name in ("postinst", "prerm", "postrm") else 0o644)
    name = f"stead_{release.version}_{architecture}.deb"
    built = root.parent / name
    run("dpkg-deb", "--root-owner-group", "-Zxz", "-z3", "--build", root, built, env=release.environment)
    release.finish(name, built)


def rpm(release, stage):
    if not shutil.which("rpmbuild"):
        return print("dist: no rpmbuild; the .rpm is left out")
    place = release.scratch("rpm")
    root = place / "stage"
    shutil.copytree(stage, root)
    # Distributions with RPM have other directories for zsh than Debian.
    functions = root / "usr/share/zsh/site-functions"
    (root / "usr/share/zsh/vendor-completions").rename(functions)
    release.settle(root)
    # Other directories belong to other packages.
    own = [f"%dir /{path.relative_to(root)}" for path in sorted(root.rglob("stead")) if path.is_dir()]
    files = own + [f"/{path.relative_to(root)}" for path in sorted(root.rglob("*")) if path.is_file()]
    spec = (PACKAGING / "rpm/stead.spec").read_text()
    values = {"VERSION": release.version, "SUMMARY": SUMMARY, "STAGE": str(root), "FILES": "\n".join(files)}
    for name, value in values.items():
        spec = spec.replace(f"@{name}@", value)
    described = place / "stead.spec"
    described.write_text(spec)
    defined = {
        "_topdir": place,
        "_rpmdir": place,
        "_buildhost": "stead",
        "use_source_date_epoch_as_buildtime": "1",
        "clamp_mtime_to_source_date_epoch": "1",
        "_binary_payload": "w3.xzdio",
    }
    arguments = [word for name, value in defined.items() for word in ("--define", f"{name} {value}")]
    command = ["rpmbuild", "-bb", "--quiet", "--target", f"{release.machine}-linux", *arguments, described]
    run(*command, env=release.environment)
    [built] = place.rglob("*.rpm")
    release.finish(f"stead-{release.version}-1.{release.machine}.rpm", built)


def chart(release):
    """Packs the Helm chart, which has the version of the release."""
    place = release.scratch("chart") / "chart"
    shutil.copytree(ROOT / "deploy/helm/stead", place)
    given = (place / "Chart.yaml").read_text()
    if f'\nversion: {release.version}\nappVersion: "{release.version}"\n' not in given:
        sys.exit(f"dist: deploy/helm/stead/Chart.yaml has another version than {release.version}")
    release.settle(place)
    release.finish(f"stead-chart-{release.version}.tgz", squeeze(tar(release, place, "stead")), [])
