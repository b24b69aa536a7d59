"""mpirun as the launcher, and the backend ort_mpi: every collective on two and four processes, what
is said of ranks that do not come, and how processes end."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ortmodule.distributed import mpi

from ortmodule import _native

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from mpi_checks import CHECKS  # noqa: E402

needs_mpirun = pytest.mark.skipif(mpi.launcher() is None, reason="no MPI on this machine")
needs_mpi = pytest.mark.skipif(
    not mpi.built() or mpi.launcher() is None, reason="no MPI on this machine"
)


def mpirun(ranks: int, *arguments, timeout=60, **environment) -> subprocess.CompletedProcess:
    drop = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    env = {k: v for k, v in os.environ.items() if k not in drop} | {
        "OMP_NUM_THREADS": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        **environment,
    }
    command = [mpi.launcher(), "-n", str(ranks), sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=timeout)


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_all_ranks_check_all(ranks, tmp_path):
    """mpi_checks.py, and that the processes end by themselves, with no destroy_process_group."""
    done = mpirun(ranks, HERE / "mpi_checks.py", tmp_path, timeout=150)
    failed = {}
    for rank in range(ranks):
        file = tmp_path / f"{rank}.json"
        said = json.loads(file.read_text()) if file.exists() else {}
        failed |= {(rank, n): said.get(n, "missing") for n in CHECKS if said.get(n) != "ok"}
    text = "\n".join(f"{name} on rank {rank}: {said}" for (rank, name), said in failed.items())
    assert not failed, f"{text}\n{done.stderr[-2000:]}"
    assert (done.returncode, done.stderr) == (0, "")


BEGIN = """
import sys, time, torch, torch.distributed as dist, ortmodule.distributed
from datetime import timedelta
seconds = lambda x: timedelta(seconds=x)
"""


def run_code(ranks: int, code: str, **environment) -> subprocess.CompletedProcess:
    return mpirun(ranks, "-c", BEGIN + code, **environment)


@needs_mpi
@pytest.mark.slow
def test_a_rank_that_does_not_come():
    """The error has rank, op and sizes; the group is closed and its tensors are kept for MPI."""
    code = """
ortmodule.distributed.init("ort_mpi", timeout=seconds(4))
group = dist.new_group(timeout=seconds(1))
if dist.get_rank() == 0:
    for _ in range(2):
        try:
            dist.all_reduce(torch.ones(3, 5), group=group)
        except dist.DistBackendError as error:
            print(error, flush=True)
    try:
        dist.new_group(timeout=seconds(1))
    except RuntimeError as error:
        print(error, flush=True)
else:
    time.sleep(4)
"""
    done = run_code(2, code)
    late = (
        r"\[ort_mpi\] not done in 1000 ms, as a rank is slow or did not come; "
        r"ALLREDUCE Float\[3, 5\], op 1 of group \w+, rank 0 of 2"
    )
    first, second, third = done.stdout.splitlines()
    assert re.match(late, first), done.stdout + done.stderr
    assert re.match(r"\[ort_mpi\] the group is closed: " + late, second), second
    assert re.match(r"\[ort_mpi\] group \w+: rank \[1\] did not come in 0:00:01", third), third


@needs_mpi
@pytest.mark.slow
def test_a_rank_that_fails_ends_the_job():
    code = """
ortmodule.distributed.init("ort_mpi")
if dist.get_rank():
    raise ValueError("of rank 1")
dist.barrier()
"""
    before = time.monotonic()
    done = run_code(2, code)
    assert done.returncode != 0 and "of rank 1" in done.stderr
    assert time.monotonic() - before < 30


@needs_mpi
@pytest.mark.slow
def test_ranks_on_several_nodes_agree_by_mpi():
    """As if each rank were on a node of its own: rank 0's address comes by MPI.

    Sizes that differ from rank to rank are found with TORCH_DISTRIBUTED_DEBUG=DETAIL.
    """
    code = """
import os
for name in ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"):
    os.environ[name] = "1"
ortmodule.distributed.init("gloo")
assert "ortmodule._mpi" in sys.modules
group = dist.new_group(backend="ort_mpi", timeout=seconds(5))
x = torch.ones(2)
dist.all_reduce(x, group=group)
assert x.tolist() == [2.0, 2.0]
try:
    dist.all_reduce(torch.ones(3 + dist.get_rank()), group=group)
except RuntimeError as error:
    print("mismatch" in str(error), flush=True)
"""
    done = run_code(2, code, TORCH_DISTRIBUTED_DEBUG="DETAIL")
    assert done.stdout.split() == ["True"] * 2, done.stdout + done.stderr


@needs_mpirun
@pytest.mark.slow
def test_mpirun_launches_gloo():
    code = """
ortmodule.distributed.init("gloo")
import os
x = torch.ones(2) * dist.get_rank()
dist.all_reduce(x)
assert x.tolist() == [1, 1] and dist.get_backend() == "gloo"
assert "ortmodule._mpi" not in sys.modules
dist.barrier()
print(*(os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")), flush=True)
"""
    done = run_code(2, code)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["0 2 0", "1 2 1"]


@needs_mpi
@pytest.mark.slow
def test_another_launcher_is_one_error():
    """torchrun starts processes of which each is alone to MPI."""
    code = """
from ortmodule.distributed import mpi
mpi._meet = lambda *_: None
dist.init_process_group("ort_mpi", store=dist.HashStore(), rank=0, world_size=2)
"""
    done = subprocess.run([sys.executable, "-c", BEGIN + code], capture_output=True, text=True)
    assert "[ort_mpi] rank 0 is process 0 of 1 to MPI" in done.stderr, done.stderr


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
