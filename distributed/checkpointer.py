"""Checkpointer: a folder a step, complete or not there, by torch.distributed.checkpoint.

A step is written aside and renamed when every process has written its part; manifest.py says what
is in it, so that a part which is missing or cut is noticed before anything of it is used.
"""

import random
import re
import shutil
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint import state_dict as states
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.utils import _pytree as pytree

from . import manifest
from .everyone import Everyone
from .plain_data import Planner, Reader, pack, unpack

_STEP = re.compile(r"step-(\d{9,})$")


class Checkpointer:
    """Saves and loads a training run in `folder`, which all processes share.

    model: bare, an ORTModule, in DDP or DataParallel, or sharded; optimizer: any of torch's or
        ours, or a ZeroRedundancyOptimizer of them; scheduler, scaler: with state_dict(). loader:
        torchdata's StatefulDataLoader, or what has state_dict() and load_state_dict(); a state of
        each process. Random states of Python, numpy and torch are of each process too.
    keep: the last steps that are kept. asynchronous: a save copies, and is written while training
        goes on. group: processes that save together; None: all. They talk over a Gloo group of the
        Checkpointer's own.

    Tensors are stored once, by their names in the bare model: a run may go on with another number
    of processes, or another way of sharding; there the data begin anew, with a warning. Without
    process group one process saves alone. A file is never trusted: nothing but tensors and plain
    data is read. Errors are RuntimeError, on all processes, naming rank and cause; what was
    complete stays.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        scheduler: Any = None,
        scaler: Any = None,
        loader: Any = None,
        keep: int = 3,
        asynchronous: bool = False,
        group: dist.ProcessGroup | None = None,
    ):
        if keep < 1:
            raise ValueError(f"[Checkpointer] keep is {keep}, expected 1 or more")
        self.folder, self.keep = Path(folder), keep
        self._model, self._optimizer = model, optimizer
        self._shared = {"scheduler": scheduler, "scaler": scaler}
        self._loader = loader
        self._everyone = Everyone(group, apart=True, asker="Checkpointer")
        self._writer = ThreadPoolExecutor(1) if asynchronous else None
        self._written: Future | None = None
        self._everyone.do(f"cannot make {folder}", self._make_folder)

    def _make_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    # --- saving ---

    def save(self, step: int) -> None:
        """Saves the run as it is after `step` steps. Raises what an earlier asynchronous save
        raised."""
        self.wait()
        state, first = self._state()
        if self._writer is None:
            self._write(step, state, first)
        else:
            state = pytree.tree_map(_copy, state)
            self._written = self._writer.submit(self._write, step, state, first)

    def wait(self) -> None:
        """Until what is being saved is complete; raises what went wrong."""
        written, self._written = self._written, None
        if written is not None:
            written.result()

    def close(self) -> None:
        """As `wait`; nothing can be saved or loaded afterwards."""
        try:
            self.wait()
        finally:
            if self._writer is not None:
                self._writer.shutdown()
            self._everyone.close()

    def _state(self) -> tuple[dict, dict]:
        """What torch.distributed.checkpoint stores, and what of it process 0 alone has."""
        state: dict[str, Any] = {"model": states.get_model_state_dict(self._model)}
        if isinstance(self._optimizer, ZeroRedundancyOptimizer):
            self._optimizer.consolidate_state_dict(to=0)
        elif self._optimizer is not None:
            state["optimizer"] = states.get_optimizer_state_dict(self._model, self._optimizer)
        first: dict[str, Any] = {}

        def add_packed() -> None:
            state[f"rank{self._everyone.rank}"] = pack(self._own_state(), "the loader's state")
            first["shared"] = pack(self._shared_state(), "the scheduler's or scaler's state")

        self._everyone.do("cannot save", add_packed)
        return state, first

    def _own_state(self) -> dict:
        own = {"random": _random_states()}
        return own if self._loader is None else own | {"loader": self._loader.state_dict()}

    def _shared_state(self) -> dict:
        shared = {k: part.state_dict() for k, part in self._shared.items() if part is not None}
        if isinstance(self._optimizer, ZeroRedundancyOptimizer) and self._everyone.rank == 0:
            shared["zero"] = self._optimizer.state_dict()
        return shared

    def _write(self, step: int, state: dict, first: dict) -> None:
        whole = self._at(step)
        aside = whole.with_suffix(".partial")
        everyone = self._everyone
        if everyone.rank == 0:
            state = state | first
        try:
            everyone.do(f"cannot clear {aside.name}", lambda: _remove(aside), only=0)
            everyone.do(
                f"cannot write {aside.name}",
                lambda: self._by_torch(dcp.save, state, checkpoint_id=aside),
            )
            parts = everyone.gather(
                f"cannot read back {aside.name}", lambda: manifest.of_rank(aside, everyone.rank)
            )
            everyone.do(
                f"cannot complete {aside.name}",
                lambda: (manifest.complete(aside, whole, step, parts), self._drop_old()),
                only=0,
            )
        except RuntimeError:
            if everyone.rank == 0:
                shutil.rmtree(aside, ignore_errors=True)
            raise

    def _drop_old(self) -> None:
        for old in self.steps()[: -self.keep]:
            shutil.rmtree(self._at(old), ignore_errors=True)

    # --- loading ---

    def steps(self) -> list[int]:
        """The steps whose folders are there, in order."""
        found = (_STEP.match(entry.name) for entry in self.folder.iterdir())
        return sorted(int(match[1]) for match in found if match)

    def load(self, step: int | None = None) -> int | None:
        """Puts back what was saved: the latest step that is complete, or `step`; gives its number,
        None where there is none. A later one that is not complete is told by a warning."""
        self.wait()
        names = self._of_first(self.steps)
        for candidate in reversed(names if step is None else [step]):
            broken = self._broken(self._at(candidate))
            if broken is None:
                self._read(self._at(candidate))
                return candidate
            if step is not None:
                raise RuntimeError(f"[Checkpointer] {self._at(candidate)} {broken}")
            warnings.warn(f"[Checkpointer] {self._at(candidate)} is left out: it {broken}")
        return None

    def _at(self, step: int) -> Path:
        return self.folder / f"step-{step:09d}"

    def _of_first(self, action: Callable[[], Any]) -> Any:
        """What `action` gives on rank 0, as folders may look different elsewhere."""
        return self._everyone.gather("cannot look at the folder", action, only=0)[0]

    def _broken(self, path: Path) -> str | None:
        """What the first rank that complains says of a step's folder."""
        found = self._everyone.gather("cannot look at the folder", lambda: manifest.broken(path))
        return next(filter(None, found), None)

    def _read(self, path: Path) -> None:
        saved = self._of_first(lambda: manifest.read(path))
        files = set(saved["files"])
        sizes = self._of_first(lambda: Reader(path, files).packed())
        mine = f"rank{self._everyone.rank}" if self._everyone.count == saved["world"] else None
        packed = {n: torch.empty(sizes[n], dtype=torch.uint8) for n in ("shared", mine) if n}
        self._fill(packed, path, files)
        shared = unpack(packed["shared"])
        state: dict[str, Any] = {"model": states.get_model_state_dict(self._model)}
        if self._optimizer is not None and "zero" not in shared:
            state["optimizer"] = self._optimizer_state()
        self._fill(state, path, files)
        self._put_back(state, shared, unpack(packed[mine]) if mine else None)
        if mine is None:
            warnings.warn(
                f"[Checkpointer] saved by {saved['world']} processes, loaded by "
                f"{self._everyone.count}: random states and the position in the data begin anew"
            )

    def _optimizer_state(self) -> dict:
        if isinstance(self._optimizer, ZeroRedundancyOptimizer):
            raise RuntimeError(
                "[Checkpointer] saved with another optimizer than a ZeroRedundancyOptimizer, "
                "expected that kind"
            )
        return states.get_optimizer_state_dict(self._model, self._optimizer)

    def _fill(self, state: dict, path: Path, files: set[str]) -> None:
        self._everyone.do(
            f"cannot read {path}",
            lambda: self._by_torch(
                dcp.load, state, storage_reader=Reader(path, files), planner=Planner()
            ),
        )

    def _by_torch(self, function: Callable, *args: Any, **options: Any) -> None:
        """Calls one of torch.distributed.checkpoint's, over the group of the Checkpointer."""
        everyone = self._everyone
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")
            function(*args, process_group=everyone.group, no_dist=everyone.alone, **options)

    def _put_back(self, state: dict, shared: dict, own: dict | None) -> None:
        states.set_model_state_dict(self._model, state["model"])
        if "optimizer" in state:
            states.set_optimizer_state_dict(self._model, self._optimizer, state["optimizer"])
        elif self._optimizer is not None:
            self._optimizer.load_state_dict(shared["zero"])
        for name, part in self._shared.items():
            if part is not None and name in shared:
                part.load_state_dict(shared[name])
        if own is None:
            return
        _put_random_states(own["random"])
        if self._loader is not None and "loader" in own:
            self._loader.load_state_dict(own["loader"])


def _remove(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)


def _copy(value: Any) -> Any:
    if isinstance(value, DTensor):
        local = value.to_local().detach().clone()
        return DTensor.from_local(
            local, value.device_mesh, value.placements, run_check=False,
            shape=value.shape, stride=value.stride(),
        )  # fmt: skip
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _random_states() -> dict[str, Any]:
    kind, keys, *rest = np.random.get_state()
    found = {
        "python": random.getstate(),
        "numpy": (kind, torch.from_numpy(keys.astype(np.int64)), *rest),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        found["cuda"] = torch.cuda.get_rng_state()
    return found


def _put_random_states(found: dict[str, Any]) -> None:
    random.setstate(found["python"])
    kind, keys, *rest = found["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(found["torch"])
    if "cuda" in found and torch.cuda.is_available():
        torch.cuda.set_rng_state(found["cuda"])
