"""First calls that set something up: eager's, then captured in the state that they leave."""

import torch
from torch import nn

from .table import Base, Case, case


@case(captured=True)
def a_flag():
    def body(s, x):
        scale, s.first = (10.0 if s.first else 1.0), False
        return s.l(x) * scale

    return Case(Base(body, first=True))


@case(captured=True)
def a_flag_that_changes_nothing():
    def body(s, x):
        s.ready = True
        return s.l(x)

    return Case(Base(body, ready=False))


@case(captured=True)
def a_number_from_sizes():
    def body(s, x):
        if s.width is None:
            s.width = x.shape[1]
        return s.l(x) * s.width

    return Case(Base(body, width=None))


@case(captured=True)
def a_buffer_registered():
    def body(s, x):
        mu = x.detach().mean()
        if hasattr(s, "ema"):
            s.ema = 0.9 * s.ema + 0.1 * mu
        else:
            s.register_buffer("ema", mu)
        return s.l(x) * s.ema

    return Case(Base(body))


@case(captured=True)
def weights_from_the_first_batch():
    def body(s, x):
        if not s.ready:
            with torch.no_grad():
                s.l.weight.mul_(x.std())
            s.ready = True
        return s.l(x)

    return Case(Base(body, ready=False))


@case(captured=True)
def a_buffer_from_the_first_batch():
    def body(s, x):
        if not s.ready:
            s.n.copy_(x.detach().mean())
            s.ready = True
        return s.l(x) * s.n

    return Case(Base(body, ready=False))


@case(captured=True)
def a_layer_made():
    def body(s, x):
        if s.late is None:
            s.late = nn.Linear(x.shape[1], 2)
            nn.init.ones_(s.late.weight)
            nn.init.zeros_(s.late.bias)
        return s.late(s.l(x))

    return Case(Base(body, late=None))


@case(captured=True)
def lazy_layers():
    class Ones(nn.LazyLinear):
        def reset_parameters(self):
            if not self.has_uninitialized_params() and self.in_features:
                nn.init.ones_(self.weight)
                nn.init.zeros_(self.bias)

    return Case(Base(lambda s, x: s.m(s.l(x)), m=Ones(2)))


@case(captured=True)
def a_warm_up_of_two_calls():
    def body(s, x):
        if s.calls < 1:
            s.calls += 1
            return s.l(x) * 0.5
        return s.l(x)

    return Case(Base(body, calls=0))


@case(captured=False)
def a_flag_beside_a_refusal():
    def body(s, x):
        s.first = False
        return s.l(x) * (2.0 if x.sum() > 1e9 else 1.0)

    return Case(Base(body, first=True))


@case(captured=True)
def a_tensor_attribute_made():
    def body(s, x):
        if s.table is None:
            s.table = torch.arange(3.0)
        return s.l(x) * s.table

    return Case(Base(body, table=None))
