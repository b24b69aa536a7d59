"""Launchers, and the backend `ort_mpi`, which communicates over MPI.

`init` is called by users, `register` by this package; the collectives are in mpi.cpp.
"""

import atexit
import importlib.util
import os
import shutil
import socket
import sys
import zlib
from datetime import timedelta
from typing import NamedTuple

from ortmodule import _native

# Where launchers say which rank a process is: rank, ranks, rank on its node, ranks on its node.
_LAUNCHERS = (
    (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),  # Open MPI
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),  # MPICH, Intel MPI
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),  # srun
)
# What all ranks of a job share and the next job does not.
_JOBS = ("PMIX_NAMESPACE", "OMPI_MCA_orte_hnp_uri", "SLURM_JOB_ID")


class Place(NamedTuple):
    """Where the launcher put this process."""

    rank: int
    size: int
    local_rank: int
    local_size: int


def built() -> bool:
    """Whether ortmodule was built where an MPI is installed."""
    from ortmodule import _build_info

    return bool(_build_info.MPICXX) and importlib.util.find_spec("ortmodule._mpi") is not None


def launcher() -> str | None:
    """The mpirun of the MPI that ortmodule was built with, else any; None without one."""
    from ortmodule import _build_info

    beside = (_build_info.MPICXX or "").replace("mpicxx", "mpirun").replace("mpic++", "mpirun")
    return shutil.which(beside) or shutil.which("mpirun")


def place() -> Place | None:
    """What mpirun or srun says of this process; None without them."""
    for names in _LAUNCHERS:
        if all(name in os.environ for name in names):
            return Place(*(int(os.environ[name].partition("(")[0]) for name in names))
    return None


def init(backend: str | None = None, **options) -> None:
    """torch.distributed.init_process_group, with ranks and address from the launcher.

    Under torchrun as in torch, but restarted workers get a store of their own (attempts.py). Where
    RANK and WORLD_SIZE are set by others: env://. Under mpirun or srun the launcher's ranks are
    taken, and RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT are set in the environment.
    Without a launcher: a world of one.

    The address under mpirun or srun is MASTER_ADDR and MASTER_PORT where the user has set both.
    Else, for `ort_mpi` or several nodes, rank 0 chooses one and broadcasts it over MPI. On one node
    otherwise the port is computed from the job's name.

    backend: gloo, nccl, ort_mpi or a map as torch takes it; None is torch's choice for the devices.
    options: those of init_process_group, such as timeout.
    Errors: RuntimeError where no address can be known, or the ranks are not MPI's; ImportError
    where `ort_mpi` is asked for and was not built.
    """
    import torch.distributed as dist

    from . import attempts

    register()
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        here = place() or Place(0, 1, 0, 1)
        os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = _address(here, backend)
        os.environ["RANK"], os.environ["WORLD_SIZE"] = str(here.rank), str(here.size)
        os.environ["LOCAL_RANK"] = str(here.local_rank)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        timeout = options.get("timeout") or dist.distributed_c10d.default_pg_timeout
        ranks = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
        dist.init_process_group(backend, store=attempts.store(timeout), **ranks, **options)
    else:
        dist.init_process_group(backend, init_method="env://", **options)


def _address(here: Place, backend: str | None) -> tuple[str, str]:
    given = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if all(given):
        return given
    if here.size == 1:
        return "127.0.0.1", _free_port()
    one_node = here.local_size == here.size
    if built() and (not one_node or "ort_mpi" in (backend or "")):
        return _from_first("127.0.0.1" if one_node else socket.getfqdn(), _free_port())
    job = next((os.environ[name] for name in _JOBS if name in os.environ), str(os.getppid()))
    if one_node:  # below the ports that systems hand out by themselves
        return "127.0.0.1", str(10000 + zlib.crc32(job.encode()) % 20000)
    raise RuntimeError(
        "the ranks are on several nodes and ortmodule was built without MPI, so they cannot agree "
        "on an address: mpirun -x MASTER_ADDR=<the node of rank 0> -x MASTER_PORT=<a free port>"
    )


def _from_first(*words: str) -> tuple[str, ...]:
    """Rank 0's words, broadcast over MPI."""
    import torch

    mpi = _begin()
    rank, size = mpi.world()
    group = mpi.group(list(range(size)), rank, 0, timedelta(minutes=5))
    text = torch.zeros(1024, dtype=torch.uint8)
    text[: len(" ".join(words).encode())] = torch.tensor(list(" ".join(words).encode()))
    group.broadcast(text, 0).wait()
    return tuple(bytes(text.tolist()).rstrip(b"\0").decode().split())


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return str(probe.getsockname()[1])


def register() -> None:
    """Makes `ort_mpi` a backend of torch.distributed; MPI begins with the first group."""
    import torch.distributed as dist

    if "ort_mpi" not in dist.Backend.backend_list:
        dist.Backend.register_backend("ort_mpi", _group, extended_api=True, devices=["cpu"])


def _group(options, _):
    """Makes a group; c10d calls this on its members."""
    from .everyone import wait_for

    ranks = options.global_ranks_in_group or list(range(options.group_size))
    timeout = timedelta(seconds=options.timeout.total_seconds())
    group = f"group {options.group_id} of ort_mpi"  # where MPI would wait without a timeout
    wait_for(options.store, ranks, ranks[options.group_rank], group, timeout)
    mpi = _begin()
    rank, size = mpi.world()
    if size <= max(ranks) or rank != ranks[options.group_rank]:
        raise RuntimeError(
            f"[ort_mpi] rank {ranks[options.group_rank]} is process {rank} of {size} to MPI: start "
            f"with the mpirun of the MPI that ortmodule was built with ({launcher()}) and take the "
            "ranks that it gives, as ortmodule.distributed.init does"
        )
    tag = zlib.crc32(options.group_id.encode()) % 32768  # MPI promises tags up to 32767
    return mpi.group(ranks, options.group_rank, tag, options.timeout)


def _begin():
    mpi = _native.mpi()
    mpi.world()
    atexit.unregister(_leave)
    atexit.register(_leave)
    return mpi


def _leave() -> None:
    """Finalizes MPI at exit, which waits for all ranks; not after an exception that nobody caught,
    as the other ranks may never come."""
    _native.mpi().leave(not hasattr(sys, "last_type"))
