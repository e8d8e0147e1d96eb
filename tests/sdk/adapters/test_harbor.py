"""The adapter for Harbor: a whole trial with the oracle agent, and the transfer of directories."""

import os

import pytest
from harbor.models.task.config import EnvironmentConfig as TaskEnvironment
from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
from harbor.models.trial.paths import TrialPaths
from harbor.trial.trial import Trial

from stead import Stead
from stead.adapters.harbor import SteadEnvironment

SOLUTION = "#!/bin/bash\nset -o pipefail\nseq 3 | tail -1 > answer.txt\n"
TEST = '#!/bin/bash\n[ "$(cat answer.txt)" = 3 ] && echo 1 > /logs/verifier/reward.txt\n'


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


async def test_the_oracle_solves_a_task(tmp_path):
    task = tmp_path / "count"
    write(task / "task.toml", 'version = "1.0"\n[environment]\nworkdir = "/app"\n')
    write(task / "instruction.md", "Write 3 to answer.txt.\n")
    write(task / "environment/Dockerfile", "FROM debian\nWORKDIR /app\n")
    write(task / "solution/solve.sh", SOLUTION)
    write(task / "tests/test.sh", TEST)
    config = TrialConfig(
        task=TaskConfig(path=task),
        trials_dir=tmp_path / "trials",
        agent=AgentConfig(name="oracle"),
        environment=EnvironmentConfig(import_path="stead.adapters.harbor:SteadEnvironment", kwargs={"image": ""}),
    )
    trial = await Trial.create(config)
    result = await trial.run()
    assert result.exception_info is None, result.exception_info
    assert result.verifier_result.rewards == {"reward": 1}
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
