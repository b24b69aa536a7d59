"""mpirun as the launcher, and the backend ort_mpi: every collective and DataParallel on two and
four processes, what is said of ranks that do not come, and how processes end."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import told
from fork_server import Forked
from mpi_checks import CHECKS, ON_GLOO
from ortmodule.distributed import mpi

from ortmodule import _native

HERE = Path(__file__).parent / "ranks"

needs_mpirun = pytest.mark.skipif(mpi.launcher() is None, reason="no MPI on this machine")
needs_mpi = pytest.mark.skipif(
    not mpi.built() or mpi.launcher() is None, reason="no MPI on this machine"
)


class Launch:
    """mpi_checks.py under mpirun: once for all tests of this file that look at it."""

    def __init__(self, ranks: int, folder: Path, *more: str):
        drop = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
        env = {k: v for k, v in os.environ.items() if k not in drop} | {
            "OMP_NUM_THREADS": "1",
            # PYTHONSAFEPATH, with which a wheel is tested, leaves a script's own folder out.
            "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path]),
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_rmaps_base_oversubscribe": "1",
        }
        script = [sys.executable, HERE / "mpi_checks.py", folder, *more]
        self.done = subprocess.run(
            [mpi.launcher(), "-n", str(ranks), *map(str, script)],
            capture_output=True, text=True, env=env, timeout=300,
        )  # fmt: skip
        files = [folder / f"{rank}.json" for rank in range(ranks)]
        self.said = [json.loads(f.read_text()) if f.exists() else {} for f in files]

    def check(self, names) -> None:
        failed = {
            f"{name} on rank {rank}": said.get(name, "missing")
            for rank, said in enumerate(self.said)
            for name in names
            if said.get(name) != "ok"
        }
        text = "\n".join(f"{name}: {said}" for name, said in failed.items())
        assert not failed, f"{text}\n{self.done.stderr[-2000:]}"


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return Launch(2, tmp_path_factory.mktemp("pair"), *(["faults"] if mpi.built() else []))


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    return Launch(4, tmp_path_factory.mktemp("four"))


@needs_mpirun
@pytest.mark.slow
def test_mpirun_launches_gloo(pair, four):
    pair.check(ON_GLOO)
    four.check(ON_GLOO)


@needs_mpi
@pytest.mark.slow
def test_two_ranks_check_all(pair):
    pair.check(CHECKS)


@needs_mpi
@pytest.mark.slow
def test_four_ranks_check_all(four):
    """And the processes end by themselves, with no destroy_process_group."""
    four.check(CHECKS)
    slow = r"ortmodule: capturing \w+ (\.\.\.|took [\d.]+ s)"  # what a busy machine says
    assert (four.done.returncode, re.sub(slow, "", four.done.stderr).strip()) == (0, "")


@needs_mpi
@pytest.mark.slow
def test_a_rank_that_does_not_come(pair):
    """The error has rank, op and sizes; the group is closed and its tensors are kept for MPI."""
    late = (
        r"\[ort_mpi\] not done in 1000 ms, as a rank is slow or did not come; "
        r"ALLREDUCE Float\[3, 5\], op 1 of group \w+, rank 0 of 2"
    )
    first, second, third = pair.done.stdout.splitlines()
    assert re.match(late, first), pair.done.stdout + pair.done.stderr
    assert re.match(r"\[ort_mpi\] the group is closed: " + late, second), second
    assert re.match(r"rank 1 did not come to group \w+ of ort_mpi in 0:00:01", third), third


@needs_mpi
@pytest.mark.slow
def test_a_rank_that_fails_ends_the_job(pair):
    assert pair.done.returncode != 0 and "of rank 1" in pair.done.stderr


@needs_mpi
@pytest.mark.slow
def test_another_launcher_is_one_error():
    """torchrun starts processes of which each is alone to MPI."""
    process = Forked(0, told.alone_to_mpi)
    try:
        assert process.pipe.poll(60)
        assert "[ort_mpi] rank 0 is process 0 of 1 to MPI" in process.pipe.recv()
    finally:
        process.kill()


OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
SRUN = {
    "SLURM_PROCID": "5",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
}


@pytest.fixture
def bare(monkeypatch):
    """The environment of no launcher."""
    names = {n for row in mpi._LAUNCHERS for n in row}
    for name in [*names, "MASTER_ADDR", "MASTER_PORT", *mpi._JOBS]:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    "environment, place",
    [
        ({}, None),
        (OPEN_MPI, (3, 4, 1, 2)),
        (MPICH, (1, 2, 1, 2)),
        (SRUN, (5, 8, 1, 4)),
        (OPEN_MPI | SRUN, (3, 4, 1, 2)),
    ],
)
def test_places_of_launchers(bare, environment, place):
    for name, value in environment.items():
        bare.setenv(name, value)
    assert mpi.place() == place


def test_addresses(bare):
    """The user's; a port of the job's; without MPI one error for several nodes."""
    bare.setattr(mpi, "built", lambda: False)
    two = mpi.Place(0, 2, 0, 2)
    bare.setenv("PMIX_NAMESPACE", "job 1")
    address = mpi._address(two, "gloo")
    assert mpi._address(two._replace(rank=1, local_rank=1), None) == address
    assert address[0] == "127.0.0.1" and 10000 <= int(address[1]) < 30000
    bare.setenv("PMIX_NAMESPACE", "job 2")
    assert mpi._address(two, "gloo") != address
    with pytest.raises(RuntimeError, match="mpirun -x MASTER_ADDR=<the node of rank 0>"):
        mpi._address(two._replace(local_size=1), "gloo")
    bare.setenv("MASTER_ADDR", "here")
    bare.setenv("MASTER_PORT", "1234")
    assert mpi._address(two, "gloo") == ("here", "1234")


def test_what_to_install_is_said(monkeypatch):
    find = _native.importlib.util.find_spec
    monkeypatch.setattr(
        _native.importlib.util, "find_spec", lambda n: None if n == "ortmodule._mpi" else find(n)
    )
    _native.mpi.cache_clear()
    with pytest.raises(ImportError, match="built without MPI: install one .*libopenmpi-dev"):
        _native.mpi()
    _native.mpi.cache_clear()
