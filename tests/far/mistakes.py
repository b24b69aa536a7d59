"""Twenty plans with a wait, a copy or a host mark less, or as many with a mistake about where the
elements of a value lie, drawn from all there are.

Run by test_mistakes.py: prints those that nothing notices. Each has a process of its own, as memory
of the device that the host touches ends it; torch's autograd does not outlive a fork, so this one
runs no backward. It makes the plan where a mistake is one of the run and not of the plan.
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
QUEUED = ("WAIT", "COPY")
OF_LAYOUTS = {"REORDER": 7, "UNORDERED": 7, "TAKEN": 6}


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
    assert status == 0, f"{function.__name__}{arguments[2:]} ended with {status}"
    return json.loads(result)


def trained():
    """A model whose steps run on both devices."""
    return Trained("bert", "far", "cpu", "aten")


def outcome(model):
    """Losses, and what the last step has made of the parameters."""
    losses = model.losses(STEPS)
    return losses + [p.detach().double().abs().sum().item() for p in model.model.parameters()]


def planned():
    """As trained, when its first forward has run."""
    model = trained()
    far.schedule(0)
    model.model(**model.batch)
    return model


def everything(model):
    """The outcome of late steps; at how many places each mistake may be made; ports with marks."""
    model = model or trained()
    far.schedule(0)
    far.leave_out(far.Mistake.NONE)
    result = outcome(model)
    return result, {kind.name: far.met(kind) for kind in far.Mistake}, far.marked()


def is_noticed(model, expected, mistake, *where):
    """Whether some schedule has another outcome."""
    if mistake == "unmark":
        far.unmark(*where)
    model = model or trained()
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


def drawn(subject, met, marks):
    """Twenty mistakes."""
    draw = random.Random(5)
    if subject == "layouts":
        return [
            (k, i) for k, count in OF_LAYOUTS.items() for i in draw.sample(range(met[k]), count)
        ]
    queued = [(kind, i) for kind in QUEUED for i in range(met[kind])]
    return draw.sample(queued, 15) + [("unmark", *draw.choice(marks)) for _ in range(5)]


def main(subject):
    far.layouts(60 if subject == "layouts" else 0)
    model = planned() if subject == "layouts" else None
    expected, met, marks = in_a_process(everything, model)
    kinds = OF_LAYOUTS if subject == "layouts" else QUEUED
    assert all(met[kind] > 20 for kind in kinds) and marks, met
    assert in_a_process(is_noticed, model, expected, "NONE", 0) is False
    mistakes = drawn(subject, met, marks)
    missed = [m for m in mistakes if in_a_process(is_noticed, model, expected, *m) is False]
    print(json.dumps({"drawn": len(mistakes), "of": met, "missed": missed}))


if __name__ == "__main__":
    main(sys.argv[1])
