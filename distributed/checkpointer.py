"""Checkpointer: a folder a step, complete or not there, by torch.distributed.checkpoint.

A step is written aside and renamed when every process has written its part; manifest.py says what
is in it, so that a part which is missing or cut is noticed before anything of it is used.
"""

import operator
import re
import shutil
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint import state_dict as states
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor

from ..torch_internals.trees import tree_map
from . import manifest, optimizer_state, random_states
from .everyone import Everyone
from .plain_data import Planner, Reader, pack, unpack

_STEP = re.compile(r"step-(\d{9,})$")


class Checkpointer:
    """Saves and loads a training run in `folder`, which all processes share.

    model: bare, an ORTModule, in DDP or DataParallel, or sharded; optimizer: any of torch's or
        ours, or a ZeroRedundancyOptimizer of them; scheduler, scaler: with state_dict(). loader:
        torchdata's StatefulDataLoader, or what has state_dict() and load_state_dict(); a state of
        each process. Random states of Python, numpy and torch are of each process too.
    keep: how many steps are kept, of those up to the last saved. asynchronous: a save copies, and
        is written while training goes on. group: processes that save together; None: all. They talk
        over a Gloo group of the Checkpointer's own.

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
        self.folder, self.keep = Path(folder).absolute(), keep
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
        step, state, first = self._same(step), {}, {}
        self._everyone.do("cannot take the run's state", lambda: self._take(state, first))
        if self._writer is None:
            self._write(step, state, first)
        else:
            state = tree_map(_copy, state)
            self._written = self._writer.submit(self._write_aside, step, state, first)

    def _same(self, step: int | None) -> int | None:
        """The step that is asked for, on all processes."""
        numbers = self._everyone.gather("was given no step", lambda: _number(step))
        for rank, number in enumerate(numbers):
            if number != numbers[0]:
                raise RuntimeError(
                    f"[Checkpointer] rank {rank} was given step {number}, rank 0 {numbers[0]}"
                )
        return numbers[0]

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

    def _take(self, state: dict, first: dict) -> None:
        """Into `state` what torch.distributed.checkpoint stores, into `first` what of it process 0
        alone has. Collectives come before what may fail on one rank, for which others would wait.
        """
        state["model"] = states.get_model_state_dict(self._model)
        shared: dict[str, Any] = {}
        if isinstance(self._optimizer, ZeroRedundancyOptimizer):
            self._optimizer.consolidate_state_dict(to=0)
            if self._everyone.rank == 0:
                shared["zero"] = self._optimizer.state_dict()
        elif self._optimizer is not None:
            tensors, shared["optimizer"] = optimizer_state.take(self._model, self._optimizer)
            state |= {"optimizer": tensors} if tensors else {}
        for name, value in state["model"].items():
            if not isinstance(value, torch.Tensor):
                pack(value, f"the model's {name}")
        shared |= {k: part.state_dict() for k, part in self._shared.items() if part is not None}
        own = {"random": random_states.take()}
        if self._loader is not None:
            own["loader"] = self._loader.state_dict()
        state[f"rank{self._everyone.rank}"] = pack(own, "the loader's state")
        first["shared"] = pack(shared, "the optimizer's, scheduler's or scaler's state")

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
                lambda: (manifest.complete(aside, whole, step, parts), self._drop_old(step)),
                only=0,
            )
        except RuntimeError:
            if everyone.rank == 0:
                shutil.rmtree(aside, ignore_errors=True)
            raise

    def _write_aside(self, step: int, *parts: dict) -> None:
        """Tells what goes wrong too: a process that ends asks no more what became of a save."""
        try:
            self._write(step, *parts)
        except Exception as error:
            what = str(error).removeprefix("[Checkpointer] ")
            warnings.warn(f"[Checkpointer] step {step} was not saved: {what}")
            raise

    def _drop_old(self, last: int) -> None:
        """Those before the last of them; what is later is of a run that went on from elsewhere."""
        for old in [step for step in self.steps() if step <= last][: -self.keep]:
            shutil.rmtree(self._at(old), ignore_errors=True)

    # --- loading ---

    def steps(self) -> list[int]:
        """The steps whose folders are there, in order."""
        found = (_STEP.match(entry.name) for entry in self.folder.iterdir() if entry.is_dir())
        return sorted(int(match[1]) for match in found if match)

    def load(self, step: int | None = None) -> int | None:
        """Puts back what was saved: the latest step that is complete, or `step`; gives its number,
        None where there is none. A later one that is not complete is told by a warning."""
        self.wait()
        step = self._same(step)
        names = self._of_first(lambda: (manifest.recover(self.folder), self.steps())[1])
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
        everyone, what = self._everyone, f"cannot read {path}"
        saved = self._of_first(lambda: manifest.read(path))
        files = set(saved["files"])
        sizes = self._of_first(lambda: Reader(path, files).packed())
        mine = f"rank{everyone.rank}" if everyone.count == saved["world"] else None
        packed, opened, state = {}, {}, {}
        everyone.do(what, lambda: packed.update(_memory(sizes, ["shared", mine])))
        self._fill(packed, path, files)
        everyone.do(what, lambda: opened.update({n: unpack(t, n) for n, t in packed.items()}))
        shared, own = opened["shared"], opened.get(mine)
        everyone.do(what, lambda: state.update(self._asked(shared)))
        self._fill(state, path, files)
        everyone.do(f"cannot put back {path}", lambda: self._put_back(state, shared, own))
        for name in (n for n, part in self._shared.items() if part is not None and n not in shared):
            warnings.warn(f"[Checkpointer] {path} has no {name}: it begins anew")
        if mine is None:
            warnings.warn(
                f"[Checkpointer] saved by {saved['world']} processes, loaded by {everyone.count}: "
                "random states and the position in the data begin anew"
            )

    def _asked(self, shared: dict) -> dict[str, Any]:
        """What torch.distributed.checkpoint is to fill."""
        state: dict[str, Any] = {"model": states.get_model_state_dict(self._model)}
        if self._optimizer is None or "zero" in shared:
            return state
        if "optimizer" not in shared or isinstance(self._optimizer, ZeroRedundancyOptimizer):
            found = "another" if "optimizer" in shared else "no"
            expected = type(self._optimizer).__name__
            raise ValueError(f"saved with {found} optimizer, expected {expected}")
        asked = optimizer_state.memory(self._model, self._optimizer, shared["optimizer"])
        return state | ({"optimizer": asked} if asked else {})

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
        if self._optimizer is not None and "zero" in shared:
            self._optimizer.load_state_dict(shared["zero"])
        elif self._optimizer is not None:
            optimizer_state.put(
                self._model, self._optimizer, state.get("optimizer", {}), shared["optimizer"]
            )
        for name, part in self._shared.items():
            if part is not None and name in shared:
                part.load_state_dict(shared[name])
        if own is None:
            return
        random_states.put(own["random"])
        if self._loader is not None and "loader" in own:
            self._loader.load_state_dict(own["loader"])


def _number(step: int | None) -> int | None:
    number = None if step is None else operator.index(step)
    if number is not None and number < 0:
        raise ValueError(f"step is {number}, expected 0 or more")
    return number


def _memory(sizes: dict[str, int], names: list[str | None]) -> dict[str, torch.Tensor]:
    wanted = [name for name in names if name is not None]
    if missing := set(wanted) - sizes.keys():
        raise ValueError(f".metadata has no {min(missing)}")
    return {name: torch.empty(sizes[name], dtype=torch.uint8) for name in wanted}


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
