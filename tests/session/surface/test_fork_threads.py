"""A process forks while its other threads open and run models: no child waits for them."""

import os
import subprocess
import sys
import textwrap

import pytest

BUSY = textwrap.dedent("""
    import faulthandler, os, signal, sys, threading
    import numpy as np
    import onnx
    from onnx import parser
    import ortmodule as ort

    SHAPES = {"MatMul": ((256,), (256, 256)), "Conv": ((8, 12, 12), (8, 8, 3, 3))}

    def opened(seed, op="MatMul"):
        inner, sizes = SHAPES[op]
        kinds = ",".join(map(str, ("m", *inner))), ",".join(map(str, sizes))
        model = parser.parse_model('''<ir_version: 8, opset_import: ["" : 17]>
            g (float[%s] x, float[%s] w) => (y)
            { h = %s(x, w) s = Sigmoid(h) y = Mul(h, s) }''' % (*kinds, op))
        w = np.random.default_rng(seed).standard_normal(sizes, np.float32) / 16
        model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
        del model.graph.input[1]
        return ort.InferenceSession(model.SerializeToString())

    def rows(n, op="MatMul"):
        return np.ones((n, *SHAPES[op][0]), np.float32)

    faulthandler.register(signal.SIGALRM, chain=True)

    def forked(work):
        child = os.fork()
        if child == 0:
            signal.alarm(90)  # which ends a child that waits for ever, and says where
            os._exit(0 if work() else 1)
        return os.waitpid(child, 0)[1]

    def under(threads, forks, work):
        done = threading.Event()
        def again(f):
            number = 0
            while not done.is_set():
                f(number := number + 1)
        running = [threading.Thread(target=again, args=(f,)) for f in threads]
        for thread in running: thread.start()
        statuses = []
        while len(statuses) < forks and not any(statuses): statuses.append(forked(work))
        done.set()
        for thread in running: thread.join()
        assert not any(statuses), statuses
""")

OPENED = """
op = sys.argv[1]
session, x = opened(0, op), rows(40, op)
want = session.run(None, {"x": x})[0]

def opens(number):
    opened(number, op).run(None, {"x": x})

def child():
    opened(10**6 + os.getpid(), op).run(None, {"x": x})
    return all(np.allclose(session.run(None, {"x": x[:n]})[0], want[:n], 1e-3, 1e-3)
               for n in (40, 7, 33))

def two_deep():
    return child() and forked(child) == 0

under([opens, opens, lambda number: session.run(None, {"x": x[: 1 + number % 39]})], 60, two_deep)
"""

BOUND = """
session, x = opened(0), rows(40)
want = session.run(None, {"x": x})[0]
bound = session.bind({"x": x})
under([lambda _: bound.run()] * 2, 60, lambda: np.array_equal(bound.run()[0], want))
"""

PYTHON_OP = """
children = None  # or those that the function has forked

@ort.custom_op("test.forks::Twice")
def twice(x):
    if children is not None: children.append(os.fork())
    return 2 * x

model = parser.parse_model('''<ir_version: 8, opset_import: ["" : 17, "test.forks" : 1]>
    g (float[m,256] x) => (float[m,256] y) { h = test.forks.Twice(x) y = Tanh(h) }''')
session, x = ort.InferenceSession(model.SerializeToString()), rows(9)
want = session.run(None, {"x": x})[0]
bound = session.bind({"x": x})

# Parent and child go on from within the function to the run's end.
for run in (lambda: session.run(None, {"x": x})[0], lambda: bound.run()[0]):
    children = []
    same = np.array_equal(run(), want)
    forked_here, children = children, None
    same &= np.array_equal(run(), want)
    if forked_here == [0]: os._exit(0 if same else 1)
    assert same and os.waitpid(forked_here[0], 0)[1] == 0

# A thread in the function of a bound run waits for the interpreter, which the fork has.
under([lambda _: bound.run()], 60, lambda: np.array_equal(bound.run()[0], want))
"""

# Sessions to which initializers are fed are kept under a lock of Python's.
FED = """
sys.setswitchinterval(1e-6)
model = parser.parse_model('''<ir_version: 8, opset_import: ["" : 17]>
    g (float[m,4] x, float[4] w) => (float[m,4] y) { y = Mul(x, w) }''')
model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(4, np.float32), "w"))
session = ort.InferenceSession(model.SerializeToString())
feed = {"x": np.ones((3, 4), np.float32), "w": np.full(4, 2, np.float32)}
session.run(None, feed)
under([lambda _: session.run(None, feed)] * 2, 200, lambda: session.run(None, feed)[0].sum() == 24)
"""

# Who has one for longer than a fork waits keeps it in the parent; in the child it is free.
HELD = """
from ortmodule import fork
fork._LONGEST_SECONDS = 0.2
own, other = fork.guarded(threading.RLock()), fork.guarded(threading.Lock())
held, done = threading.Event(), threading.Event()

def hold():
    with other:
        held.set()
        done.wait()

holder = threading.Thread(target=hold)
holder.start()
held.wait()
with own:
    assert forked(lambda: own._is_owned() and other.acquire(timeout=5)) == 0
    assert own._is_owned() and other.locked()
done.set()
holder.join()
assert not other.locked() and forked(lambda: other.acquire(timeout=5)) == 0
"""

MODULES = """
sys.setswitchinterval(1e-5)
import torch
from ortmodule import ORTModule

def infers(net):
    with torch.no_grad():
        return torch.equal(net(torch.ones(3, 4)), torch.full((3, 4), 8.0))

class Branch(torch.nn.Module):
    def forward(self, x):  # a branch on values: in parts
        x = x * 2
        return x * 4 if x.sum() > 0 else x

class Whole(torch.nn.Module):
    def forward(self, x):
        return x * 8

net = ORTModule(Whole())

def captured(_=0):
    return infers(ORTModule(Branch() if "parts" in sys.argv[1] else Whole()))

if sys.argv[1] == "called":
    assert infers(net)
    under([lambda _: infers(net)] * 2, 40, lambda: infers(net))
else:
    assert captured()
    under([captured], 12, captured)
"""


@pytest.mark.parametrize(
    "script, op",
    [(OPENED, "MatMul"), (OPENED, "Conv"), (BOUND, ""), (PYTHON_OP, ""), (FED, ""), (HELD, ""),
     (MODULES, "called"), (MODULES, "captured"), (MODULES, "captured in parts")],
    ids=["products", "convolutions", "bound", "python_op", "fed", "held", "modules", "captures",
         "captures_in_parts"],
)  # fmt: skip
def test_children_of_a_busy_process_go_on(script, op):
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BUSY + script, op],
        check=True,
        timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "2"},
    )
