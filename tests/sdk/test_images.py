"""Images and snapshots built with Daytona's own Python client, against this server."""

import os
import unittest

from server import Server, main

SERVER = Server()
os.environ["DAYTONA_API_KEY"] = SERVER.token
os.environ["DAYTONA_API_URL"] = f"{SERVER.url}/daytona"
os.environ["DAYTONA_TARGET"] = "local"

from daytona import (  # noqa: E402  (the client reads the environment)
    CreateSandboxFromImageParams,
    CreateSandboxFromSnapshotParams,
    CreateSnapshotParams,
    Daytona,
    Image,
)

DAYTONA = Daytona()
# An image that needs no registry: the default image of the provider replaces it.
DEFAULT = "daytonaio/sandbox:0.5.0"


def tearDownModule():
    SERVER.close()


def of_image(image, **choices):
    params = CreateSandboxFromImageParams(image=image, auto_stop_interval=0)
    return DAYTONA.create(params, timeout=300, **choices)


class Snapshots(unittest.TestCase):
    def test_a_snapshot_is_built_used_and_deleted(self):
        image = (
            Image.base(DEFAULT)
            .env({"ONE": "1", "QUOTED": "it's $ONE"})
            .workdir("/srv/my app")
            .run_commands("echo $ONE > one.txt && echo built", "touch 'two words'")
            .entrypoint(["sh", "-c", "echo up > /tmp/up; sleep 1000"])
        )
        logs = []
        made = DAYTONA.snapshot.create(CreateSnapshotParams(name="mine", image=image), on_logs=logs.append)
        self.assertEqual((made.name, made.state.value), ("mine", "active"))
        self.assertIn("built", "\n".join(logs))
        self.assertIn("using the default files of provider", "\n".join(logs))
        sandbox = DAYTONA.create(CreateSandboxFromSnapshotParams(snapshot="mine", auto_stop_interval=0))
        self.assertEqual(sandbox.snapshot, "mine")
        self.assertEqual(sandbox.process.exec("cat '/srv/my app/one.txt'; echo $ONE \"$QUOTED\"").result, "1\n1 it's $ONE\n")
        self.assertEqual(DAYTONA.snapshot.get("mine").id, made.id)
        self.assertIn("mine", [one.name for one in DAYTONA.snapshot.list().items])
        self.assertEqual(DAYTONA.snapshot.activate(made).state.value, "active")
        with self.assertRaisesRegex(Exception, "already exists"):
            DAYTONA.snapshot.create(CreateSnapshotParams(name="mine", image=DEFAULT))
        DAYTONA.snapshot.delete(made)
        with self.assertRaises(Exception):
            DAYTONA.snapshot.get("mine")
        # Its sandboxes are not affected.
        self.assertEqual(sandbox.process.exec("cat '/srv/my app/one.txt'").result, "1\n")
        sandbox.delete()

    def test_a_snapshot_of_an_image_by_its_name(self):
        made = DAYTONA.snapshot.create(CreateSnapshotParams(name="plain", image=DEFAULT))
        self.assertEqual(made.state.value, "active")
        DAYTONA.create(CreateSandboxFromSnapshotParams(snapshot="plain")).delete()
        DAYTONA.snapshot.delete("plain")

    def test_failures_are_reported(self):
        image = Image.base(DEFAULT).run_commands("echo why >&2; exit 3")
        with self.assertRaisesRegex(Exception, "exit code 3: why"):
            DAYTONA.snapshot.create(CreateSnapshotParams(name="fails", image=image))
        self.assertEqual(DAYTONA.snapshot.get("fails").state.value, "build_failed")
        with self.assertRaises(Exception):
            DAYTONA.create(CreateSandboxFromSnapshotParams(snapshot="fails"))
        DAYTONA.snapshot.delete("fails")
        with self.assertRaisesRegex(Exception, "line 2: VOLUME is not supported"):
            image = Image.base(DEFAULT).dockerfile_commands(["VOLUME /x"])
            DAYTONA.snapshot.create(CreateSnapshotParams(name="fails", image=image))
        with self.assertRaisesRegex(Exception, "receives no files with an image"):
            image = Image.base(DEFAULT).add_local_file(__file__, "/srv/")
            DAYTONA.snapshot.create(CreateSnapshotParams(name="fails", image=image))

    def test_a_sandbox_waits_for_its_image(self):
        image = Image.base(DEFAULT).run_commands("echo of the image > /srv/file; echo built")
        logs = []
        sandbox = of_image(image, on_snapshot_create_logs=logs.append)
        self.assertIn("built", "\n".join(logs))
        self.assertEqual(sandbox.state.value, "started")
        self.assertEqual(sandbox.process.exec("cat /srv/file").result, "of the image\n")
        # The same text is built once.
        again = of_image(image)
        self.assertEqual(again.process.exec("cat /srv/file").result, "of the image\n")
        self.assertEqual([one.name for one in DAYTONA.snapshot.list().items], ["default"])
        for one in (sandbox, again, of_image(DEFAULT)):
            one.delete()
        with self.assertRaisesRegex(Exception, "exit code 4"):
            of_image(Image.base(DEFAULT).run_commands("exit 4"))


if __name__ == "__main__":
    main()
