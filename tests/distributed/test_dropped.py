"""A link between two namespaces of the network that is dropped in the middle of training."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "ranks"
NAMES = [f"ort{os.getpid()}x{rank}" for rank in range(2)]
ADDRESSES = ["10.77.0.1", "10.77.0.2"]


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture
def link():
    """Two namespaces and a pair of devices between them; gives what drops it."""
    try:
        for name in NAMES:
            ip("netns", "add", name)
        ip("link", "add", NAMES[0], "type", "veth", "peer", "name", NAMES[1])
        for name, address in zip(NAMES, ADDRESSES, strict=True):
            ip("link", "set", name, "netns", name)
            ip("-n", name, "addr", "add", f"{address}/24", "dev", name)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", name, "up")
    except (OSError, subprocess.CalledProcessError) as error:
        remove()
        pytest.skip(f"no namespaces of the network here: {getattr(error, 'stderr', error)}")
    yield lambda: ip("-n", NAMES[1], "link", "set", NAMES[1], "down")
    remove()


def remove() -> None:
    for name in NAMES:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def start(rank: int, folder: Path) -> subprocess.Popen:
    return subprocess.Popen(
        ["ip", "netns", "exec", NAMES[rank], sys.executable, "-W", "ignore",
         str(HERE / "dropped.py"), str(rank), ADDRESSES[0], str(folder)],
        stdout=subprocess.PIPE, text=True, cwd=HERE,
        env=os.environ | {"GLOO_SOCKET_IFNAME": NAMES[rank], "OMP_NUM_THREADS": "1",
                          "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])},
    )  # fmt: skip


def test_a_link_is_dropped(link, tmp_path):
    """Each rank has one error within the timeouts of its group and of torch's store."""
    ranks = [start(rank, tmp_path) for rank in range(2)]
    try:
        deadline = time.monotonic() + 100
        while not all((tmp_path / f"ready{rank}").exists() for rank in range(2)):
            assert time.monotonic() < deadline and all(r.poll() is None for r in ranks)
            time.sleep(0.1)
        link()
        (tmp_path / "dropped").touch()
        for number, rank in enumerate(ranks):
            said = rank.communicate(timeout=60)[0]
            what = ("without a word from rank 1", "the process that has the store does not answer")
            assert f"[DataParallel] rank {number}: all_reduce of bucket 0" in said, said
            assert what[number] in said, said
    finally:
        for rank in ranks:
            rank.kill()
