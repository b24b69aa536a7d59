"""Faults of a job: the same loss curve after resumption, or one clear error within the timeout."""

import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from processes import Processes

HERE = Path(__file__).parent / "ranks"


@pytest.fixture
def impatient(tmp_path):
    processes = Processes(2, tmp_path, timeout=8)
    yield processes
    processes.stop()


def first(outcomes):
    ok, value = outcomes[0]
    assert ok, value
    return value


def test_a_rank_is_killed(impatient):
    told = first(impatient.outcomes("faults", "killed"))
    assert told.startswith("RuntimeError: [DataParallel] rank 0: all_reduce of bucket "), told
    assert "gradients" in told and "bytes) failed, without a word from rank 1" in told


def test_a_rank_is_late(impatient):
    told = first(impatient.outcomes("faults", "late", 13.0))
    assert told.startswith("RuntimeError: [DataParallel] rank 0: all_reduce of bucket 0"), told
    assert "without a word from rank 1" in told and "time" in told.lower(), told


def test_a_rank_is_late_at_first(impatient):
    told = first(impatient.outcomes("faults", "late_at_first", 13.0))
    assert told.startswith("RuntimeError: rank 1 did not come to the first step of DataParallel 0")


def test_another_graph(pair):
    for told in pair.run("faults", "another_graph", False):
        assert told.startswith(
            "RuntimeError: [DataParallel] rank 1 captured another graph than rank 0: node 0 is "
        ), told
        assert "node 0 is Sigmoid of float32, at" in told and "there ort::Linear of float32" in told


def test_a_longer_graph(pair):
    for told in pair.run("faults", "another_graph", True):
        assert re.search(r"rank 1 captured another graph than rank 0: \d+ nodes, there \d+ ", told)


def test_other_parameters(pair):
    for told in pair.run("faults", "other_parameters"):
        assert "rank 1 captured another graph than rank 0: it does not read blocks.2." in told, told


def test_another_version(pair):
    for told in pair.run("faults", "another_version"):
        for text, package in zip(told, ("ortmodule", "torch"), strict=True):
            assert f"[DataParallel] rank 1 runs {package} " in text, text
            assert ", rank 0 runs " in text, text


def test_a_rank_in_eager_is_no_fault(pair):
    assert pair.run("faults", "one_in_eager") == ["nothing", "nothing"]


def test_graphs_are_compared_where_rank_0_has_none(four):
    for told in four.run("faults", "eager_before_another_graph"):
        assert "rank 3 captured another graph than rank 1: node 0 is Sigmoid" in told, told


def test_what_a_process_names_is_no_difference(pair):
    assert pair.run("faults", "python_steps") == ["nothing", "nothing"]


def test_ranks_may_be_in_other_groups(impatient):
    assert impatient.run("faults", "in_other_groups") == ["nothing", "nothing"]


def test_a_rank_may_have_been_in_another_job(impatient, tmp_path):
    again = str(tmp_path / "again")
    assert impatient.run("faults", "in_another_job", again) == ["nothing", "nothing"]


def test_a_group_is_not_released_by_its_own_thread(impatient, tmp_path):
    store = str(tmp_path / "store")
    assert impatient.run("faults", "groups_left_at_once", store) == ["nothing", "nothing"]


def test_sync_batch_norm_is_refused_as_in_eager(pair):
    for eager, ours in pair.run("faults", "sync_batch_norm"):
        assert eager == ours and "SyncBatchNorm" in ours, (eager, ours)


def torchrun(folder: Path, kills: str = "", restarts: int = 0) -> subprocess.Popen:
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         "--max-restarts", str(restarts), "--monitor-interval", "0.2", str(HERE / "job.py")],
        env=os.environ | {"FOLDER": str(folder), "KILLS": kills, "OMP_NUM_THREADS": "1",
                          "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def losses(folder: Path) -> dict[str, str]:
    """By step the last that was noted."""
    return dict(line.split() for line in (folder / "losses").read_text().splitlines())


def finished(job: subprocess.Popen) -> str:
    output, _ = job.communicate(timeout=300)
    assert job.returncode == 0, output[-3000:]
    return output


# In forward, in backward, while a checkpoint is written and before it is complete.
KILLS = "1:1:forward 0:5:backward 1:7:writing 0:9:renaming"


@pytest.mark.parametrize(
    "kills", [pytest.param(KILLS, marks=pytest.mark.long), "0:5:backward 1:9:renaming"]
)
def test_kills_at_chosen_moments(pair, kills, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    pair.run("job", "run", whole)
    finished(torchrun(killed, kills, restarts=4))
    assert len(losses(whole)) == 12 and losses(killed) == losses(whole)
    lines = (killed / "losses").read_text().splitlines()
    assert len(lines) > 12, "no step was made again"
    assert sorted(p.name for p in (killed / "steps").iterdir()) == [
        "step-000000008", "step-000000010", "step-000000012",
    ]  # fmt: skip


@pytest.mark.long
def test_kills_at_random_moments(pair, tmp_path):
    whole, chosen = tmp_path / "whole", random.Random(0)
    whole.mkdir()
    pair.run("job", "run", whole)
    for kill in range(20):
        folder = tmp_path / f"killed{kill}"
        job = torchrun(folder, restarts=3)
        time.sleep(chosen.uniform(2.0, 9.0))
        below = psutil.Process(job.pid).children(recursive=True)
        workers = [p for p in below if "job.py" in p.cmdline()[-1]]
        if workers:
            chosen.choice(workers).kill()
        finished(job)
        assert losses(folder) == losses(whole), kill
