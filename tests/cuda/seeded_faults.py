"""A hundred faults, drawn from all there are in texts and in calls: prints what nobody notices.

Run by test_seeded_faults.py with a seed. Each has a process forked for it, in which graphs whose
kernels have it run under several schedules; it is noticed where something fails, or a bit of a
result differs.
"""

import collections
import json
import os
import pathlib
import random
import signal
import sys

import numpy as np

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / name) for name in ("far", "cuda")]
sys.path.append(str(ROOT))

import cuda_double  # noqa: E402
import far  # noqa: E402
from fault_sites import sites  # noqa: E402
from test_packs import GRAPHS, feed_of, graph_of  # noqa: E402

from ortmodule import _native  # noqa: E402
from tests.ops import engine  # noqa: E402
from tests.ops.families import TABLE  # noqa: E402

C = _native.core()
SCHEDULES = range(8)
OPS = (
    "ort::Dropout", "Gather", "ort::Embedding", "ort::GatherGrad", "ort::CrossEntropy",
    "ort::CrossEntropyGrad", "Transpose", "Concat", "Split",
    "ort::SliceGrad", "MatMul", "Gemm", "ort::Linear",
)  # fmt: skip
ROWS = np.linspace(-2, 2, 2 * 4352 * 2, dtype=np.float32)
TARGETS = {"x": ROWS[:30].reshape(5, 6), "t": [1, 0, 5, 2, 3]}
PARTS, GIVEN = (
    ", %d: float32[] user, %p: float32[5, 2] user",
    {"d": ROWS[-1], "p": ROWS[-10:].reshape(5, 2)},
)
LOSS = "%x: float32[5, 6] user, %t: int64[5] user"
# Sizes that end where a block's part ends, and indices out of range: name: (ports, body, feed).
MORE = {
    "parts": (
        "%x: float32[2, 4352, 2] user",
        "  %axis = Constant() {value=int64[1]{1}}\n  %y = ReduceSum(%x, %axis)\n",
        {"x": ROWS.reshape(2, 4352, 2)},
    ),
    "parts' maxima": (
        "%x: float32[2, 4352, 2] user",
        "  %axis = Constant() {value=int64[1]{1}}\n  %y = ReduceMax(%x, %axis)\n",
        {"x": ROWS.reshape(2, 4352, 2)},
    ),
    "wrong index": (
        "%x: float32[4, 6] user, %t: int64[2] user",
        "  %y = Gather(%x, %t)\n",
        {"x": ROWS[:24].reshape(4, 6), "t": [1, 4]},
    ),
    "wrong target": (
        LOSS,
        "  %y = ort::CrossEntropy(%x, %t)\n",
        TARGETS | {"t": [1, 0, 6, 2, 3]},
    ),
    "wrong target with weights": (
        LOSS + ", %w: float32[6] user",
        "  %y = ort::CrossEntropy(%x, %t, %w)\n",
        TARGETS | {"t": [1, 0, 6, 2, 3], "w": ROWS[-6:]},
    ),
    "smoothed": (
        LOSS,
        "  %y = ort::CrossEntropy(%x, %t) {label_smoothing=0.1}\n",
        TARGETS,
    ),
    "smoothed and weighted": (
        LOSS + ", %w: float32[6] user",
        "  %y = ort::CrossEntropy(%x, %t, %w) {label_smoothing=0.1}\n",
        TARGETS | {"w": ROWS[-6:]},
    ),
    "wrong target of a gradient": (
        LOSS + PARTS,
        "  %y = ort::CrossEntropyGrad(%d, %x, %t, %p)\n",
        TARGETS | GIVEN | {"t": [1, 0, 6, 2, 3]},
    ),
    "gradient with weights": (
        LOSS + PARTS + ", %w: float32[6] user",
        "  %y = ort::CrossEntropyGrad(%d, %x, %t, %p, %w)\n",
        TARGETS | GIVEN | {"w": ROWS[-6:]},
    ),
    "wrong target of a gradient with weights": (
        LOSS + PARTS + ", %w: float32[6] user",
        "  %y = ort::CrossEntropyGrad(%d, %x, %t, %p, %w)\n",
        TARGETS | GIVEN | {"t": [1, 0, 6, 2, 3], "w": ROWS[-6:]},
    ),
}
# Values that go between the host and the device: each wait has something to wait for. In a graph
# that stays on the device some waits are covered by others, as the last one for an upload that a
# kernel has awaited.
MIXED = """  %axis = Constant() {value=int64[]{1}}
  %a = Tanh(%x)
  %b = CumSum(%a, %axis)
  %c = Softmax(%b)
  %d = CumSum(%c, %axis)
  %e = Mul(%d, %a)
  %f = CumSum(%e, %axis)
  %g = Add(%f, %t)
  %h = CumSum(%g, %axis)
  %i = Mul(%h, %c)
  %y = Softmax(%i)
"""
DRAWN = {"wait": 20, "context": 10, "lifetime": 15, "barrier": 15, "bound": 20, "key": 10,
         "alignment": 10}  # fmt: skip
CALLS = {
    "context": (cuda_double.Fault.CONTEXT,),
    "lifetime": (cuda_double.Fault.SYNCHRONIZE, cuda_double.Fault.FILL),
}
KERNELS = ("run", "packs", "fold", "link", "add", "total", "finish")
SECONDS = 100  # of a process


def programs() -> dict:
    """Graphs and their feeds, by name."""
    found = {}
    for name in GRAPHS:
        for cols in (130, 255, 256, 200, 640, 1000):
            feed = feed_of(name, "float32", cols)
            found[f"{name} {cols}"] = graph_of(name, "float32", cols), feed
    for op in OPS:
        for number, sample in enumerate(TABLE[op].samples):
            if op == "ort::Dropout" and sample.attrs.get("ratio") in (0.0, 1.0):
                continue  # no number is drawn
            found[f"{op} {number}"] = engine.graph_of(TABLE[op], sample, "float32")
    for name, (ports, body, feed) in MORE.items():
        graph = C.parse(f'graph ({ports})\n{body}return ("y" = %y)\n')
        found[name] = graph, {k: np.asarray(v) for k, v in feed.items()}
    for cols in (5, 60, 300):
        ports = f"%x: float32[3, {cols}] user, %t: float32[3, {cols}] user"
        x = np.sin(np.arange(3 * cols, dtype=np.float32)).reshape(3, cols)
        graph = C.parse(f'graph ({ports})\n{MIXED}return ("c" = %c, "g" = %g, "y" = %y)\n')
        found[f"mixed {cols}"] = graph, {"x": x, "t": x[::-1].copy()}
    return found


PROGRAMS = programs()


def run(name: str) -> str:
    """The bits of a program's results, or its error."""
    graph, feed = PROGRAMS[name]
    try:
        with cuda_double.foreign_context():
            compiled = C.Compiled(graph, ["cuda", "cpu"] if "mixed" in name else ["cuda"])
            results = compiled.run(feed)
            # Before a plan's end waits for its device.
            return " ".join(np.ascontiguousarray(y).tobytes().hex() for y in results)
    except (C.Error, RuntimeError) as error:
        return str(error)


def in_a_process(function, *arguments):
    """What the function returns in a process forked for it; None where a signal ends that one."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        code = 1
        try:
            with os.fdopen(writer, "w") as pipe:
                json.dump(function(*arguments), pipe)
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        result = pipe.read()
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return None
    assert status == 0, f"{function.__name__} ended with {status}"
    return json.loads(result)


def everything():
    """Each program's results and texts, as those are that cuda runs; calls and waits of each."""
    cuda_double.use()
    found, texts = {}, set()
    for name in PROGRAMS:
        far.schedule(0)
        far.leave_out(far.Mistake.NONE)
        cuda_double.fault(cuda_double.Fault.NONE)
        cuda_double.forget_texts()
        bits = run(name)
        if "no provider runs it" in bits:
            continue
        calls = {k: [cuda_double.calls(c) for c in kinds] for k, kinds in CALLS.items()}
        calls["wait"] = [far.met(far.Mistake.WAIT)]
        texts |= set(cuda_double.texts())
        ran = [(text, k) for text in texts for k in KERNELS if cuda_double.launched(k, text)]
        found[name] = {"bits": bits, "ran": ran, "calls": calls}
    return found


def outcomes(names, begin) -> list[str]:
    """Of each program under each schedule."""
    cuda_double.use()
    found = []
    for name in names:
        for seed in SCHEDULES:
            far.schedule(seed)
            begin()
            found.append(run(name))
    return found


def draw(known: dict) -> list[tuple]:
    """Kind, what it is, programs that have it, and how it is begun."""
    random.seed(int(sys.argv[1]))
    runs = collections.defaultdict(list)
    for name, program in known.items():
        for text, kernel in program["ran"]:
            runs[text, kernel].append(name)
    pools = collections.defaultdict(list)
    for text in dict.fromkeys(text for text, _ in runs):
        for site in sites(text):
            names = runs.get((text, site.kernel))
            if not names:
                continue
            begin = lambda site=site: cuda_double.replace(site.text, site.mutant)  # noqa: E731
            pools[site.kind].append((site.kind, site.line, names, begin))
    for name, program in known.items():
        mixed = "mixed" in name
        for i in range(program["calls"]["wait"][0] if mixed else 0):
            begin = lambda i=i: far.leave_out(far.Mistake.WAIT, i)  # noqa: E731
            pools["wait"].append(("wait", f"{i} of {name}", [name], begin))
        for kind, calls in CALLS.items():
            for call, count in zip(calls, program["calls"][kind], strict=True):
                if call is cuda_double.Fault.SYNCHRONIZE and not mixed:
                    continue
                for i in range(count):
                    begin = lambda call=call, i=i: cuda_double.fault(call, i)  # noqa: E731
                    pools[kind].append((kind, f"{call.name} {i} of {name}", [name], begin))
    print({kind: len(pool) for kind, pool in pools.items()}, file=sys.stderr)
    return [fault for kind, count in DRAWN.items() for fault in random.sample(pools[kind], count)]


def main() -> None:
    known = in_a_process(everything)
    drawn = draw(known)

    def is_noticed(fault) -> bool:
        _, _, names, begin = fault
        found = in_a_process(outcomes, names, begin)
        return found != [known[name]["bits"] for name in names for _ in SCHEDULES]

    missed = [fault[:3] for fault in drawn if not is_noticed(fault)]
    print(json.dumps({"drawn": len(drawn), "missed": missed}))


if __name__ == "__main__":
    main()
