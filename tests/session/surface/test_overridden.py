"""Runs that feed initializers: a session of the engine's for each set of them, the latest few."""

import itertools
import threading
import weakref

import numpy as np
import onnxruntime
import pytest

import ortmodule
from ortmodule.inference import errors
from ortmodule.inference import opened as of_one_model

from .both import X, model

NAMES = "abcd"
SUM = model(
    "(float[n, 3] x, " + ", ".join(f"float[3] {n}" for n in NAMES) + ") => (float[n, 3] y) <"
    + ", ".join(f"float[3] {n} = {{{i}, {i}, {i}}}" for i, n in enumerate(NAMES)) + "> {"
    "p = Add(x, a) \n q = Mul(p, b) \n r = Add(q, c) \n y = Sub(r, d) }"
)  # fmt: skip
SETS = [set(s) for size in range(5) for s in itertools.combinations(NAMES, size)]


def feed(names):
    given = np.arange(3, dtype=np.float32)
    return {"x": X, **{name: given + ord(name) for name in names}}


def test_results_are_onnxruntimes_however_often_sets_change():
    ours = ortmodule.InferenceSession(SUM)
    theirs = onnxruntime.InferenceSession(SUM, providers=["CPUExecutionProvider"])
    for names in [*SETS, *reversed(SETS), *SETS]:
        expected = theirs.run(None, feed(names))[0]
        np.testing.assert_array_equal(ours.run(None, feed(names))[0], expected)


def test_few_sessions_are_kept(monkeypatch):
    made = []
    session = ortmodule.InferenceSession(SUM)
    opened = session._opened

    def counted(fed):
        result = opened(fed)
        made.append(weakref.ref(result[0]))
        return result

    monkeypatch.setattr(session, "_opened", counted)
    for _ in range(3):
        for names in SETS:
            session.run(None, feed(names))
            assert sum(each() is not None for each in made) <= of_one_model._MOST + 1
    assert len(session._with_open) == of_one_model._MOST
    count = len(made)
    for names in SETS[-of_one_model._MOST :] * 5:  # the latest are there
        session.run(None, feed(names))
    assert len(made) == count


def test_threads_that_feed_different_sets():
    session, wrong = ortmodule.InferenceSession(SUM), []
    expected = {frozenset(s): session.run(None, feed(s))[0] for s in SETS}

    def work(seed):
        for i in np.random.default_rng(seed).permutation(len(SETS)):
            (y,) = session.run(None, feed(SETS[i]))
            if not np.array_equal(y, expected[frozenset(SETS[i])]):
                wrong.append(SETS[i])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_run_whose_session_is_no_longer_kept_is_ended():
    begun, ended = threading.Event(), threading.Event()

    @ortmodule.custom_op("test.surface::Wait", types=lambda x: x)
    def wait(x):
        if x[0, 0] < 0:
            begun.set()
            assert ended.wait(10)
        return x

    head = '<ir_version: 9, opset_import: ["" : 17, "test.surface" : 1]> g '
    text = "(float[n, 3] x, float[3] a, float[3] b, float[3] c) => (float[n, 3] y) <" + ", ".join(
        f"float[3] {name} = {{0, 0, 0}}" for name in "abc"
    )
    text += "> { w = test.surface.Wait(x) \n p = Add(w, a) \n q = Add(p, b) \n y = Add(q, c) }"
    session, told = ortmodule.InferenceSession(model(text, head)), []

    def work():
        try:
            session.run(None, {"x": -X - 1, "a": X[0]})
        except errors.Fail as error:
            told.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(10)
    for names in ("b", "c", "ab", "ac", "bc", "abc"):
        session.run(None, {"x": X, **dict.fromkeys(names, X[0])})
    session.terminate()
    ended.set()
    thread.join()
    assert len(told) == 1 and "terminated" in told[0]


@pytest.mark.parametrize("names", [set(), set(NAMES)])
def test_a_bound_run_reads_them_too(names):
    session = ortmodule.InferenceSession(SUM)
    binding = session.io_binding()
    for name, value in feed(names).items():
        binding.bind_cpu_input(name, value)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    (y,) = binding.copy_outputs_to_cpu()
    np.testing.assert_array_equal(y, session.run(None, feed(names))[0])
