"""Scalars and arrays of numpy's, which are no tensors: held, given, computed with, returned."""

import math

import numpy as np
import torch

from .table import Base, Case, case


def named(*values):
    """Values with their kinds, as a scalar is no array of no dimensions."""
    return [(type(v).__name__, str(getattr(v, "dtype", None)), v) for v in values]


@case(captured=True)
def a_held_float64():
    def body(s, x):
        return s.l(x) / s.width * (3 if isinstance(s.width, float) else 1)

    return Case(Base(body, width=np.sqrt(2)))


@case(captured=True)
def a_held_float64_that_changes():
    def before(module, i):
        module.width = np.float64(i + 0.5)

    return Case(Base(lambda s, x: s.l(x) * s.width, width=np.float64(1)), before=before)


@case(captured=True)
def a_held_zero_of_both_signs():
    def before(module, i):
        module.zero = np.float64(-0.0 if i == 1 else 0.0)

    return Case(Base(lambda s, x: s.l(x) * math.copysign(2, s.zero), zero=0.0), before=before)


@case(captured=True)
def a_held_float32_and_an_int64():
    def body(s, x):
        whole = isinstance(s.steps, int), isinstance(s.width, float)
        return s.l(x) * s.width, torch.arange(3) * s.steps, whole

    return Case(Base(body, width=np.float32(0.5), steps=np.int64(3)))


@case(captured=False)
def a_given_scalar():
    kinds = np.float64, np.float32, np.int64, np.bool_

    def body(s, x, k):
        return s.l(x) * k, torch.arange(3) * k, isinstance(k, float), named(k)

    return Case(Base(body), call=lambda model, x, i: model(x, kinds[i % 4](1)))


@case(captured=True)
def integers_times_a_square_root():
    def body(s, x):
        return s.l(x), torch.arange(3) * np.sqrt(3), np.float64(2) * torch.arange(3)

    return Case(Base(body))


@case(captured=False)
def metrics_of_an_array():
    def body(s, x):
        y = s.l(x)
        a = y.detach().numpy()
        return y, named((a.argmax(-1) == 0).mean(), a.sum(), a[0, 0], np.int64(len(a)), a.max(0))

    return Case(Base(body))


@case(captured=False)
def numpys_functions_of_a_tensor():
    def body(s, x):
        y = s.l(x)
        return y, named(np.add(y.detach(), 1), np.abs(y.detach().numpy()).mean())

    return Case(Base(body))
