"""Builds the `.rpm` of the next version from a binary, for the test of an upgrade.

    next_rpm.py BINARY DIRECTORY
"""

import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "packaging"))
from release import packages  # noqa: E402
from release.contents import Release  # noqa: E402

binary, directory = (pathlib.Path(word).resolve() for word in sys.argv[1:])
with tempfile.TemporaryDirectory(prefix="stead-next-") as work:
    release = Release(binary, directory, work)
    release.version += "+next"
    packages.rpm(release, release.stage())
