"""The adapter for Harbor: a job of the oracle agent, and the transfer of directories."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from harbor.models.task.config import EnvironmentConfig as TaskEnvironment
from harbor.models.trial.paths import TrialPaths

from stead import Stead
from stead.adapters.harbor import SteadEnvironment

BASH = "#!/bin/bash\nset -euo pipefail\n"
REWARD = "/logs/verifier/reward"
# What the oracle runs, what the verifier runs, and the rewards for it.
TASKS = {
    "count": (
        "seq 3 | tail -1 > answer.txt",
        f'[ "$(cat answer.txt)" = 3 ] && echo 1 > {REWARD}.txt',
        {"reward": 1},
    ),
    # A program that the agent started still runs when the verifier looks.
    "serve": (
        "mkfifo ask reply\nnohup bash -c 'read word < ask; echo received $word > reply' > /dev/null 2>&1 &",
        f'echo you > ask\n[ "$(cat reply)" = "received you" ] && echo 1 > {REWARD}.txt',
        {"reward": 1},
    ),
    # The verifier has files of its own, and more than one reward.
    "sort": (
        "seq 1 10 100000 | shuf > numbers\nsort -n numbers > sorted",
        f'diff sorted "$(dirname "$0")/expected" && echo \'{{"right": 1, "short": 0.5}}\' > {REWARD}.json',
        {"right": 1, "short": 0.5},
    ),
}


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def write_task(task, solution, check):
    write(task / "task.toml", 'version = "1.0"\n[environment]\nworkdir = "/app"\n')
    write(task / "instruction.md", "Do what the solution does.\n")
    write(task / "environment/Dockerfile", "FROM debian\nWORKDIR /app\n")
    write(task / "solution/solve.sh", BASH + solution + "\n")
    write(task / "tests/test.sh", BASH + check + "\n")
    write(task / "tests/expected", "".join(f"{number}\n" for number in range(1, 100_001, 10)))


def test_the_oracle_solves_three_tasks(tmp_path):
    """As docs/agents.md runs it."""
    for name, (solution, check, _) in TASKS.items():
        write_task(tmp_path / "tasks" / name, solution, check)
    harbor = pathlib.Path(sys.executable).with_name("harbor")
    options = ["--environment-import-path", "stead.adapters.harbor:SteadEnvironment", "--agent", "oracle"]
    paths = ["--path", tmp_path / "tasks", "--jobs-dir", tmp_path / "jobs", "--job-name", "oracle"]
    done = subprocess.run(
        [harbor, "run", *options, *paths, "--ek", "image=", "--n-concurrent", "2", "--yes"],
        env={**os.environ, "HARBOR_TELEMETRY": "off", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    trials = [json.loads(path.read_text()) for path in tmp_path.glob("jobs/oracle/*/result.json")]
    assert [trial["exception_info"] for trial in trials] == [None] * len(TASKS), done.stdout
    rewards = {trial["task_name"].split("/")[-1]: trial["verifier_result"]["rewards"] for trial in trials}
    assert rewards == {name: expected for name, (_, _, expected) in TASKS.items()}
    with Stead.connect() as client:
        assert list(client.sandboxes.list(label="framework=harbor")) == []


async def test_files_directories_and_users(tmp_path):
    with pytest.raises(ValueError, match="names no image"):
        environment(tmp_path, {})
    one = environment(tmp_path, {"image": ""})
    await one.start(force_build=False)
    try:
        source = tmp_path / "source"
        write(source / "sub/run.sh", "#!/bin/sh\necho ran\n")
        (source / "sub/run.sh").chmod(0o755)
        (source / "link").symlink_to("sub/run.sh")
        await one.upload_dir(source, "/data/copy")
        assert (await one.exec("./link; pwd", cwd="/data/copy")).stdout == "ran\n/data/copy\n"
        await one.download_dir("/data/copy", tmp_path / "back")
        assert os.access(tmp_path / "back/sub/run.sh", os.X_OK) and (tmp_path / "back/link").is_symlink()
        await one.upload_file(source / "sub/run.sh", "/data/new/file")
        await one.download_file("/data/new/file", tmp_path / "file")
        assert (tmp_path / "file").read_text() == "#!/bin/sh\necho ran\n"
        failed = await one.exec("echo $A; echo oops >&2; exit 3", env={"A": "b"}, user="root")
        assert (failed.stdout, failed.stderr, failed.return_code) == ("b\n", "oops\n", 3)
        assert (await one.exec("sleep 60", timeout_sec=1)).return_code == 124
        assert await one.is_dir("/data") and not await one.is_file("/data")
    finally:
        await one.stop(delete=True)


def environment(tmp_path, options):
    paths = TrialPaths(tmp_path / "trial")
    paths.mkdir()
    return SteadEnvironment(
        environment_dir=tmp_path,
        environment_name="test",
        session_id="test__env",
        trial_paths=paths,
        task_env_config=TaskEnvironment(),
        **options,
    )
