"""Checks an OCI archive, unpacks its layers into a directory, and prints how to start it.

    image.py ARCHIVE DIRECTORY
"""

import gzip
import hashlib
import json
import pathlib
import shlex
import subprocess
import sys
import tarfile


def main():
    archive, directory = sys.argv[1:]
    with tarfile.open(archive) as layout:

        def read(name):
            return layout.extractfile(name).read()

        def blob(described):
            content = read(f"blobs/{described['digest'].replace(':', '/')}")
            assert len(content) == described["size"], described
            assert hashlib.sha256(content).hexdigest() == described["digest"].removeprefix("sha256:"), described
            return content

        assert json.loads(read("oci-layout")) == {"imageLayoutVersion": "1.0.0"}
        [described] = json.loads(read("index.json"))["manifests"]
        manifest = json.loads(blob(described))
        configuration = json.loads(blob(manifest["config"]))
        identities = configuration["rootfs"]["diff_ids"]
        assert len(identities) == len(manifest["layers"])
        for layer, identity in zip(manifest["layers"], identities, strict=True):
            content = gzip.decompress(blob(layer))
            assert f"sha256:{hashlib.sha256(content).hexdigest()}" == identity, layer
            subprocess.run(["tar", "-C", directory, "--numeric-owner", "-xpf", "-"], input=content, check=True)
    setting = configuration["config"]
    assert pathlib.Path(directory, "usr/share/doc/stead/NOTICES.gz").exists()
    print(f"user={shlex.quote(setting['User'])}")
    print(f"environment={shlex.quote(' '.join(setting['Env']))}")
    print(f"command={shlex.quote(' '.join([*setting['Entrypoint'], *setting['Cmd']]))}")


main()
