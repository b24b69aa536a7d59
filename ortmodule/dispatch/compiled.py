"""A capture with the runner that executes it, kept for the calls that it serves."""

import collections

import torch

from .. import _native, clock
from ..capture.finish import Capture
from ..errors import NotCapturable
from ..explain import Fallback, Step
from ..options import Options
from ..translate.emit import CAST


class CompiledCapture:
    """A capture with the runner that executes it."""

    def __init__(self, captured: Capture, options: Options):
        self.capture = captured
        self.ran = False
        self.calls = 0
        sources = [i.source for i in captured.inputs]
        wrt = [k for k, i in enumerate(captured.inputs) if i.requires_grad]
        n_outputs = len({n for o in captured.outputs for n in o.numbers}) + len(captured.assigned)
        writes = [(w.output, w.target, w.bumps, w.read_there) for w in captured.write_backs]
        self.runner = _native.torch_bridge().Runner(
            captured.graph.capsule(), sources, n_outputs, writes, captured.orders, wrt,
            captured.history, options.for_engine().capsule(), captured.second,
        )  # fmt: skip

    def plan_for(self, tensors: list) -> None:
        """Builds the plan for these tensors; what the engine refuses is a NotCapturable."""
        try:
            self.runner.compile(tensors)
        except _native.torch_bridge().Error as error:
            raise NotCapturable(f"the engine: {error}") from None

    def fits(self, tensors: list) -> bool:
        """Whether what the capture relies on is as it was; other tensors of the module's are taken
        up where they stand for those that were captured."""
        snapshot = self.capture.snapshot
        if snapshot.changed() is not None:
            return False
        if snapshot.replaced:
            self.replace(list(snapshot.replaced.values()))
            snapshot.replaced = {}  # after: who looks meanwhile sees a change
        return snapshot.aliases(tensors) == self.capture.aliases

    def is_apart(self, containers: list) -> bool:
        """Whether what forward changes or compares of a call's containers is in these alone."""
        return not self.capture.apart or not self.capture.snapshot.reaches(containers)

    def holds(self, tensors: list) -> bool:
        """Whether it fits because nothing was written to; for any thread."""
        snapshot = self.capture.snapshot
        return snapshot.unchanged() and snapshot.aliases(tensors) == self.capture.aliases

    def replace(self, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Other tensors of the module's stand where some were captured."""
        self.capture.replace(pairs)
        for old, new in pairs:
            self.runner.replace(old, new)

    def run(self, tensors: list) -> list:
        return self.runner.call(tensors)

    def timed(self, tensors: list) -> list:
        """As `run`; the time of each step is noted."""
        self.runner.start_profile()
        with clock.engine():
            return self.runner.call(tensors)

    def assign(self, outputs: list) -> None:
        """Sets the buffers that forward sets to another tensor."""
        for write in self.capture.assigned:
            old, new = write.registry[write.key], outputs[write.output]
            write.registry[write.key] = new
            self.capture.snapshot.put(write.registry, write.key, old, new)
            self.replace([(old, new)])

    def operators(self) -> list[Fallback]:
        """The steps that torch's own operators run, for want of an op of the engine's."""
        return [
            Fallback(
                op, module or None, file or None, line or None,
                f"{reason}: torch's own runs as a step of the plan",
            )
            for op, reason, module, file, line in self.runner.operators()
        ]  # fmt: skip

    def steps(self) -> list[Step]:
        return [Step(*step) for step in self.runner.steps()]

    def dtypes(self) -> tuple[dict[str, int], dict[str, int]]:
        """How many nodes give each dtype, casts aside; and how many casts there are by kind."""
        nodes, casts = collections.Counter(), collections.Counter()
        for (op, given, made), count in self.runner.typed().items():
            if op == CAST:
                casts[f"{given} to {made}"] += count
            else:
                nodes[made] += count
        return dict(nodes.most_common()), dict(casts.most_common())
