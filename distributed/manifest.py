"""What a complete checkpoint holds: a file of its own says each file's size and checksum."""

import json
import os
import shutil
import zlib
from pathlib import Path

import torch

NAME = "manifest.json"
_CHUNK = 1 << 22
_OLD = ".old"  # of a step while the same is saved again


def of_rank(folder: Path, rank: int) -> dict[str, list[int]]:
    """Size and CRC-32 of the files that a rank has written, by name. torch names data
    __<rank>_<number>.distcp; all other files are rank 0's."""
    mine = [
        path
        for path in folder.iterdir()
        if path.name.startswith(f"__{rank}_") or (rank == 0 and not path.name.startswith("__"))
    ]
    return {path.name: [path.stat().st_size, _checksum(path)] for path in mine}


def complete(aside: Path, whole: Path, step: int, parts: list[dict]) -> None:
    """Writes the manifest and gives the folder its name, in this order on the disk."""
    files, there = {}, {path.name for path in aside.iterdir()}
    for rank, part in enumerate(parts):
        if unseen := part.keys() - there:
            raise RuntimeError(
                f"{min(unseen)} of rank {rank} is not here, expected a folder that all share"
            )
        files |= part
    if strange := there - files.keys():
        raise RuntimeError(f"{min(strange)} was written by no rank")
    text = json.dumps(
        {"step": step, "world": len(parts), "torch": torch.__version__, "files": files}, indent=1
    )
    with open(aside / NAME, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    _sync(aside)
    recover(whole.parent)
    old = whole.with_suffix(_OLD)
    if whole.exists():  # the same step, saved again
        whole.rename(old)
    aside.rename(whole)
    _sync(whole.parent)
    shutil.rmtree(old, ignore_errors=True)


def recover(folder: Path) -> None:
    """Gives back its name to a step that was being saved again when the process ended."""
    for old in folder.glob(f"step-*{_OLD}"):
        whole = old.with_suffix("")
        if whole.exists():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.rename(whole)


def read(folder: Path) -> dict:
    """The manifest. Raises ValueError for a file that is no manifest."""
    found = json.loads((folder / NAME).read_text())
    files = found.get("files") if isinstance(found, dict) else None
    plain = isinstance(files, dict) and all(
        os.path.basename(name) == name and isinstance(facts, list) and len(facts) == 2
        for name, facts in files.items()
    )
    if not plain or not isinstance(found.get("world"), int):
        raise ValueError(f"{NAME} is no manifest of a checkpoint")
    return found


def broken(folder: Path) -> str | None:
    """Why a folder is no complete checkpoint; None: it is."""
    try:
        found = read(folder)
    except (OSError, ValueError) as error:
        return f"has no manifest ({error})"
    for name, (size, checksum) in found["files"].items():
        path = folder / name
        if not path.is_file():
            return f"has no {name}"
        now = path.stat().st_size
        if now != size:
            return f"has {now} bytes in {name}, expected {size}"
        if _checksum(path) != checksum:
            return f"has other bytes in {name} than were written"
    return None


def _checksum(path: Path) -> int:
    value = 0
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            value = zlib.crc32(chunk, value)
    return value


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
