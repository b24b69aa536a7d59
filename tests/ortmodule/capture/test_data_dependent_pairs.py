"""Sizes that depend on data and meet, or that torch asks about: against eager, in float64."""

import itertools

import pytest
import torch
from pairs import options
from torch import nn
from torch.nn import functional as F

from ortmodule import ORTModule


class Two(nn.Module):
    """A module whose forward is `function(x, y)`."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, y):
        return self.function(x, y)


def rows(x):
    """A mask of x's rows."""
    return x[:, 0] > 0


def given(n, count, columns):
    """n rows of which the first `count` begin with a positive number."""
    x = -torch.rand(n, columns, dtype=torch.float64) - 0.1
    x[:count, 0] *= -1
    return x


def step(module, x, y):
    """The result and both gradients; None where the call raises."""
    x, y = (v.clone().requires_grad_() for v in (x, y))
    try:
        z = module(x, y)
    except (RuntimeError, IndexError, ValueError):
        return None
    (z * torch.arange(1.0, z.numel() + 1, dtype=z.dtype).reshape(z.shape)).sum().backward()
    return z.detach(), x.grad, y.grad


def assigned(x, where, value):
    x = x.clone()
    x[where] = value
    return x


def put(x, y, accumulate):
    where = (torch.where(rows(x))[0],)
    return x.index_put(where, y[rows(y)], accumulate=accumulate)


ASSIGNED = {
    "elements": lambda x, y: assigned(x, x > 0, y[y > 0]),
    "rows": lambda x, y: assigned(x, rows(x), y[rows(y)]),
    "columns": lambda x, y: assigned(x, (rows(x), slice(0, 2)), y[rows(y), :2]),
    "rows_of_one": lambda x, y: assigned(x, rows(x), y[rows(y)][:, :1]),
    "across": lambda x, y: assigned(x, rows(x), y[rows(y), 0]),
    "places_known": lambda x, y: assigned(x, torch.tensor([0, 2, 1]), y[rows(y)]),
    "index_put": lambda x, y: put(x, y, False),
    "index_put_added": lambda x, y: put(x, y, True),
}


@pytest.mark.parametrize("name", ASSIGNED)
def test_a_selected_value_is_broadcast_where_it_is_one(name):
    """Its gradient is the sum; where it is neither one nor as many as the places, eager raises."""
    torch.manual_seed(0)
    module = Two(ASSIGNED[name])
    ours, agreed = ORTModule(module, options()), 0
    for here, there in itertools.product((0, 1, 2, 3, 5), (0, 1, 3, 4)):
        x, y = given(5, here, 3), given(6, there, 3)
        got, want = step(ours, x, y), step(module, x, y)
        assert (got is None) == (want is None), (here, there)
        for a, b in zip(got or (), want or (), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
        agreed += want is not None
    assert agreed >= 5 and ours.explain().captures == 1
    assert not ours.explain().fallbacks


def target(x):
    return torch.where(rows(x), (x[:, 1].abs() * 3).long().clamp(0, 3), -100)


def mask_twice(loss, x, selected):
    return loss(x.cos()[rows(x)], selected)


def labels(x, y):
    return F.cross_entropy(x.sin()[target(x) != -100], target(x)[target(x) != -100])


ENCODER = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True).double()
NORM = nn.BatchNorm1d(4).double()
# Where torch asks whether a size is 0 or 1, or as large as another.
ASKED = {
    "cross_entropy": labels,
    "mse_loss": lambda x, y: mask_twice(F.mse_loss, x, x[rows(x)]),
    "l1_loss": lambda x, y: mask_twice(F.l1_loss, x, x[rows(x)]),
    "bce": lambda x, y: mask_twice(F.binary_cross_entropy_with_logits, x, x.sigmoid()[rows(x)]),
    "logsumexp": lambda x, y: x[rows(x)].logsumexp(0),
    "logsumexp_rows": lambda x, y: x[rows(x)].logsumexp(1),
    "norm": lambda x, y: x[rows(x)].norm(dim=1),
    "norm_of_all": lambda x, y: x[rows(x)].norm(),
    "batch_norm": lambda x, y: NORM(x[rows(x)]),
    "instance_norm": lambda x, y: F.instance_norm(x[rows(x)].reshape(-1, 2, 2)),
    "encoder": lambda x, y: ENCODER(x[rows(x)][None]),
    "cosine_similarity": lambda x, y: F.cosine_similarity(x[rows(x)], y[:1]),
    "roll": lambda x, y: x[rows(x)].roll(1, 0),
    "diff": lambda x, y: x[rows(x)].diff(dim=0),
    "pad": lambda x, y: F.pad(x[rows(x)][None, None], (1, 1, 1, 1), mode="replicate"),
    "conv": lambda x, y: F.conv1d(x[rows(x)].t()[None], y[:2, :, None]),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_torch_asks_of_a_size_is_assumed_and_checked(name):
    """None, one, some, all: where it does not hold, the call is eager's."""
    torch.manual_seed(0)
    module = Two(ASKED[name])
    ours, runs = ORTModule(module, options()), 0
    for n, count in ((6, 3), (7, 0), (9, 1), (5, 5), (8, 4), (6, 2), (4, 0), (7, 6)):
        x, y = given(n, count, 4), given(9, 9, 4)
        got, want = step(ours, x, y), step(module, x, y)
        assert (got is None) == (want is None), (n, count)
        for a, b in zip(got or (), want or (), strict=True):
            assert (a is None) == (b is None)
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12, equal_nan=True)
        runs += want is not None
    report = ours.explain()
    assert report.captures == 1 and runs >= 5
    assert all(found.reason.startswith("the engine: [") for found in report.fallbacks), report


def steps(ours):
    return [step.name for step in ours.explain().steps]


def test_masks_that_are_computed_alike_are_searched_once():
    ours = ORTModule(Two(labels), options(fallback="error"))
    step(ours, given(6, 3, 4), given(6, 3, 4))
    assert steps(ours).count("NonZero") == 1
    apart = Two(lambda x, y: x[x > 0].sum() + x[x > -0.5].sum() + y[y > 0].sum())
    ours = ORTModule(apart, options(fallback="error"))
    x, y = given(6, 3, 4), given(6, 2, 4)
    for a, b in zip(step(ours, x, y), step(apart, x, y), strict=True):
        torch.testing.assert_close(a, b)
    assert steps(ours).count("NonZero") == 3


def test_masks_that_are_drawn_are_two():
    def drawn(x, y):
        return x[F.dropout(x)[:, 0] > 0].sum() + x[F.dropout(x)[:, 0] > 0].sum() + y.sum()

    ours = ORTModule(Two(drawn), options(fallback="error"))
    step(ours, given(6, 6, 4), given(6, 3, 4))
    assert steps(ours).count("NonZero") == 2


def test_masks_of_what_was_written_between_are_two():
    def written(x, y):
        z = x.clone()
        first = z[z > 0]
        z[:, 1] = y[: len(x), 0]
        return torch.cat([first, z[z > 0]])

    ours = ORTModule(Two(written), options(fallback="error"))
    for count in (2, 0, 4):
        x, y = given(6, 3, 4), given(7, count, 4)
        for a, b in zip(step(ours, x, y), step(Two(written), x, y), strict=True):
            torch.testing.assert_close(a, b)


def test_a_branch_of_the_users_own_is_not_assumed():
    def branch(x, y):
        kept = x[x > 0]
        return kept if kept.shape[0] == 0 else kept * 2

    ours = ORTModule(Two(branch), options())
    with pytest.warns(UserWarning, match="a part of this module in eager"):
        ours(given(6, 3, 4), given(6, 3, 4))
    assert any("data-dependent" in reason for reason in ours.explain().reasons())
