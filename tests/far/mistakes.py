"""Twenty plans with a wait, a copy or a host mark less, drawn from all there are.

Run by test_mistakes.py: prints those that nothing notices. Each has a process of its own, as memory
of the device that the host touches ends it; torch's autograd does not outlive a fork, so this one
runs no backward.
"""

import json
import os
import pathlib
import random
import signal
import sys
import traceback

sys.path[:0] = [str(pathlib.Path(__file__).parents[1] / name) for name in ("far", "models")]

import far  # noqa: E402
from trained import Trained  # noqa: E402

from ortmodule.errors import NotCapturable  # noqa: E402

STEPS, SCHEDULES = 2, range(8)


def in_a_process(function, *arguments):
    """What the function returns in a process forked for it; None where memory faulted."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.write(writer, json.dumps(function(*arguments)).encode())
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        result = pipe.read()
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSEGV:
        return None
    assert status == 0, f"{function.__name__}{arguments[1:]} ended with {status}"
    return json.loads(result)


def trained():
    """A model whose steps run on both devices."""
    return Trained("bert", "far", "cpu", "aten")


def outcome(model):
    """Losses, and what the last step has made of the parameters."""
    losses = model.losses(STEPS)
    return losses + [p.detach().double().abs().sum().item() for p in model.model.parameters()]


def everything():
    """The outcome of late steps; their waits and copies; the ports with marks."""
    model = trained()
    far.schedule(0)
    far.leave_out(far.Mistake.NONE)
    return outcome(model), *far.counts(), far.marked()


def is_noticed(expected, mistake, *where):
    """Whether some schedule has another outcome."""
    if mistake == "unmark":
        far.unmark(*where)
    model = trained()
    for seed in SCHEDULES:
        far.schedule(seed)
        if mistake != "unmark":
            far.leave_out(far.Mistake[mistake], *where)
        try:
            if outcome(model) != expected:
                return True
        except NotCapturable as error:  # a check of the engine's or the device's, as the model runs
            assert str(error).startswith("the engine: "), error
            return True
    return False


def main():
    expected, waits, copies, marks = in_a_process(everything)
    assert waits > 50 and copies > 50 and marks
    assert in_a_process(is_noticed, expected, "NONE", 0) is False
    queued = [("WAIT", i) for i in range(waits)] + [("COPY", i) for i in range(copies)]
    draw = random.Random(5)
    drawn = draw.sample(queued, 15) + [("unmark", *draw.choice(marks)) for _ in range(5)]
    missed = [m for m in drawn if in_a_process(is_noticed, expected, *m) is False]
    print(json.dumps({"drawn": len(drawn), "of": [waits, copies, len(marks)], "missed": missed}))


if __name__ == "__main__":
    main()
