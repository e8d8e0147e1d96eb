"""Templates built with E2B's own Python client on this server."""

import asyncio
import json
import os
import tempfile
import traceback
import unittest
import urllib.error
import urllib.request

from server import Server, main, until

SERVER = Server()
os.environ["E2B_API_KEY"] = SERVER.token
os.environ["E2B_API_URL"] = SERVER.url
os.environ["E2B_SANDBOX_URL"] = SERVER.url

from e2b import (  # noqa: E402  (the client reads the environment)
    AsyncTemplate,
    BuildException,
    Sandbox,
    SandboxException,
    Template,
    wait_for_file,
)

CONTEXT = tempfile.TemporaryDirectory()


def setUpModule():
    root = CONTEXT.name
    os.makedirs(f"{root}/folder/below")
    for name in ("one.txt", "two.txt", "folder/three.txt", "folder/below/four.txt", "folder/.hidden"):
        with open(f"{root}/{name}", "w", encoding="ascii") as file:
            file.write(name)
    os.symlink("three.txt", f"{root}/folder/link")


def tearDownModule():
    SERVER.close()
    CONTEXT.cleanup()


def run(sandbox, command):
    return sandbox.commands.run(command).stdout


class Building(unittest.TestCase):
    def test_steps_and_their_effects_in_sandboxes(self):
        template = (
            Template()
            .from_base_image()
            .set_envs({"ONE": "1", "BOTH": "$ONE and 2"})
            .run_cmd(["echo $BOTH > both.txt", "pwd"])
            .set_workdir("/srv/app")
            .run_cmd("echo out; echo complaint >&2; pwd > here.txt")
            .make_dir("data", mode=0o700)
            .rename("here.txt", "data/here.txt")
            .make_symlink("data/here.txt", "link")
            .run_cmd("echo $HOME > /srv/root; whoami >> /srv/root", user="root")
            .set_user("nobody")
            .run_cmd("echo $USER >> /srv/root")
            .set_user("user")
            .remove("/home/user/none", force=True)
        )
        logs = []
        info = Template.build(template, "steps", on_build_logs=logs.append)
        self.assertEqual((info.name, info.tags), ("steps", ["default"]))
        lines = [(line.level, line.message) for line in logs]
        self.assertIn(("info", "out"), lines)
        self.assertIn(("warn", "complaint"), lines)
        self.assertTrue(any(level == "warn" and "e2bdev/base" in text for level, text in lines), lines)
        sandbox = Sandbox.create("steps", timeout=600, envs={"ONE": "other"})
        self.assertEqual(run(sandbox, "pwd; cat link; echo $ONE, $BOTH"), "/srv/app\n/srv/app\nother, 1 and 2\n")
        self.assertEqual(run(sandbox, "cat ~/both.txt /srv/root; stat -c %a data"), "1 and 2\n/root\nroot\nnobody\n700\n")
        shown = sandbox.get_info()
        self.assertEqual((shown.template_id, shown.name), (info.template_id, "steps"))
        # Each sandbox has its own copy of the files.
        sandbox.files.write("/srv/app/mine", "x")
        other = Sandbox.create(info.template_id, timeout=600)
        self.assertFalse(other.files.exists("/srv/app/mine"))
        # The sandbox of the build is not listed.
        listed = {one.sandbox_id for one in Sandbox.list().next_items()}
        self.assertEqual(listed, {sandbox.sandbox_id, other.sandbox_id})
        for one in (sandbox, other):
            one.kill()

    def test_uploaded_files(self):
        def template():
            return (
                Template(file_context_path=CONTEXT.name)
                .from_template("base")
                .set_workdir("/srv/files")
                .copy("one.txt", "renamed.txt", mode=0o600)
                .copy("one.txt", "into/")
                .copy("folder", "folder")
                .copy("*.txt", "/srv/all")
                .copy(["one.txt", "two.txt"], "/srv/list/")
            )

        Template.build(template(), "files")
        sandbox = Sandbox.create("files", timeout=600)
        found = run(sandbox, "cd /srv; find files all list ! -type d | sort")
        expected = [
            "all/one.txt",
            "all/two.txt",
            "files/folder/.hidden",
            "files/folder/below/four.txt",
            "files/folder/link",
            "files/folder/three.txt",
            "files/into/one.txt",
            "files/renamed.txt",
            "list/one.txt",
            "list/two.txt",
        ]
        self.assertEqual(found.split(), expected)
        self.assertEqual(run(sandbox, "stat -c %a renamed.txt; readlink folder/link"), "600\nthree.txt\n")
        self.assertEqual(run(sandbox, "cat folder/below/four.txt"), "folder/below/four.txt")
        self.assertEqual(run(sandbox, "ls -A /var/tmp"), "")
        sandbox.kill()
        # The same files are not uploaded twice.
        logs = []
        Template.build(template(), "files", on_build_logs=logs.append)
        skipped = [line.message for line in logs if "already cached" in line.message]
        self.assertEqual(len(skipped), 6)

    def test_the_start_command_of_a_template(self):
        template = (
            Template()
            .from_base_image()
            .set_envs({"WORD": "started"})
            .set_start_cmd("echo $WORD > /tmp/ready; exec sleep 1000", wait_for_file("/tmp/ready"))
        )
        Template.build(template, "starts")
        for _ in range(2):
            sandbox = Sandbox.create("starts", timeout=600)
            # Creating a sandbox waits for the start command only up to a timeout.
            output = run(sandbox, "until [ -s /tmp/ready ]; do sleep 0.1; done; cat /tmp/ready")
            self.assertEqual(output, "started\n")
            self.assertTrue(any("sleep 1000" in " ".join(one.args) for one in sandbox.commands.list()))
            sandbox.kill()
        failing = Template().from_base_image().set_start_cmd("exit 7", wait_for_file("/tmp/never"))
        with self.assertRaisesRegex(BuildException, "start command failed: exit code 7"):
            Template.build(failing, "starts-not")

    def test_failures_are_reported_with_their_location(self):
        def begin():
            return Template(file_context_path=CONTEXT.name).from_base_image().run_cmd("true")

        # The errors of the client point at the lines of these calls.
        failing = {
            "exit code 3: why": lambda: begin().run_cmd("echo why >&2; exit 3"),
            "missing-user": lambda: begin().set_user("missing-user"),
            "/etc/hosts/x": lambda: begin().set_workdir("/etc/hosts/x"),
            "template 'never-built' not found": lambda: Template().from_template("never-built"),
        }
        for reason, make in failing.items():
            template = make()
            try:
                Template.build(template, "fails")
                self.fail(f"{reason} was built")
            except BuildException as raised:
                self.assertIn(reason, str(raised))
                last = traceback.extract_tb(raised.__traceback__)[-1]
                self.assertEqual((last.filename, last.name), (__file__, "<lambda>"), reason)
        with self.assertRaisesRegex(SandboxException, "no build with the tag"):
            Sandbox.create("fails", timeout=60)
        # A template whose builds failed can be built again.
        Template.build(begin(), "fails")
        Sandbox.create("fails", timeout=60).kill()

    def test_in_the_background_and_by_the_asynchronous_client(self):
        template = Template().from_base_image().run_cmd("echo first; sleep 1; echo last")
        info = Template.build_in_background(template, "behind")
        seen = []

        def is_over():
            status = Template.get_build_status(info, logs_offset=len(seen))
            seen.extend(line.message for line in status.log_entries)
            return status.status.value in ("ready", "error") and not status.log_entries

        until(is_over, "the build to end", 300)
        self.assertEqual(Template.get_build_status(info).status.value, "ready")
        self.assertLess(seen.index("first"), seen.index("last"))

        async def build():
            template = AsyncTemplate(file_context_path=CONTEXT.name).from_template("behind").copy("one.txt", "/srv/")
            return await AsyncTemplate.build(template, "on-top")

        info = asyncio.run(build())
        sandbox = Sandbox.create(info.template_id, timeout=600)
        self.assertEqual(run(sandbox, "cat /srv/one.txt"), "one.txt")
        sandbox.kill()


class Names(unittest.TestCase):
    def test_tags_point_to_builds(self):
        def build(number, name, **choices):
            template = Template().from_base_image().run_cmd(f"echo {number} > /srv/number")
            return Template.build(template, name, **choices)

        def number(name):
            sandbox = Sandbox.create(name, timeout=600)
            output = run(sandbox, "cat /srv/number")
            sandbox.kill()
            return int(output)

        self.assertFalse(Template.exists("tagged"))
        first = build(1, "tagged:v1", tags=["stable"])
        self.assertEqual(first.tags, ["v1", "stable"])
        second = build(2, "tagged")
        self.assertEqual(first.template_id, second.template_id)
        self.assertTrue(Template.exists("tagged"))
        self.assertTrue(Template.alias_exists("tagged:v1"))
        self.assertFalse(Template.exists("tagged:v2"))
        tags = {tag.tag: tag.build_id for tag in Template.get_tags("tagged")}
        self.assertEqual(tags, {"v1": first.build_id, "stable": first.build_id, "default": second.build_id})
        self.assertEqual([number(f"tagged{tag}") for tag in (":v1", "", ":default")], [1, 2, 2])
        assigned = Template.assign_tags("tagged:v1", ["default", "production"])
        self.assertEqual((assigned.build_id, assigned.tags), (first.build_id, ["default", "production"]))
        self.assertEqual(number("tagged"), 1)
        Template.remove_tags("tagged", ["stable", "production"])
        left = {tag.tag for tag in Template.get_tags(first.template_id)}
        self.assertEqual(left, {"v1", "default"})
        with self.assertRaisesRegex(SandboxException, "no build with the tag 'stable'"):
            Sandbox.create("tagged:stable", timeout=60)
        for wrong in (
            lambda: Template.assign_tags("tagged:none", "x"),
            lambda: Template.assign_tags("nothing", "x"),
            lambda: Template.remove_tags("nothing", "x"),
            lambda: Template.get_tags("nothing"),
        ):
            with self.assertRaises(Exception) as raised:
                wrong()
            self.assertIn("not found", str(raised.exception))
        with self.assertRaises(BuildException):
            build(3, "no such name!")

    def test_listed_in_pages_and_deleted(self):
        template = Template().from_base_image()
        ids = {Template.build(template, f"paged-{number}").template_id for number in range(3)}

        def ask(method, path):
            request = urllib.request.Request(SERVER.url + path, method=method)
            request.add_header("X-API-Key", SERVER.token)
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return answer.status, answer.headers, answer.read()
            except urllib.error.HTTPError as error:
                return error.code, error.headers, error.read()

        found, token = [], ""
        while token is not None:
            _, headers, body = ask("GET", f"/v2/templates?limit=2&nextToken={token}")
            page = json.loads(body)
            self.assertLessEqual(len(page), 2)
            found += [one["templateID"] for one in page]
            token = headers.get("x-next-token")
        self.assertEqual(len(found), len(set(found)))
        self.assertLessEqual(ids, set(found))
        one = json.loads(ask("GET", f"/templates/{min(ids)}")[2])
        self.assertEqual([build["status"] for build in one["builds"]], ["ready"])
        for id in ids:
            self.assertEqual(ask("DELETE", f"/templates/{id}")[0], 204)
            self.assertEqual(ask("DELETE", f"/templates/{id}")[0], 404)
        self.assertFalse(Template.exists("paged-0"))

    def test_uploads_need_only_their_signed_link(self):
        info = Template.build(Template().from_base_image(), "linked")
        path = f"/templates/{info.template_id}/files/{'ab' * 32}"

        def put(url):
            request = urllib.request.Request(url, data=b"x", method="PUT")
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return answer.status
            except urllib.error.HTTPError as error:
                return error.code

        request = urllib.request.Request(SERVER.url + path, headers={"X-API-Key": SERVER.token})
        with urllib.request.urlopen(request, timeout=60) as answer:
                link = json.loads(answer.read())
        self.assertFalse(link["present"])
        self.assertEqual(put(SERVER.url + path), 401)
        self.assertEqual(put(link["url"].replace("abab", "abac", 1)), 401)
        self.assertEqual(put(link["url"].replace("until=", "until=9")), 401)
        self.assertEqual(put(link["url"]), 200)
        with urllib.request.urlopen(request, timeout=60) as answer:
            self.assertTrue(json.loads(answer.read())["present"])


if __name__ == "__main__":
    main()
