"""What eager refuses, in the backward or in the call, is refused; what it had done by then is done.

And what forward sets besides: context variables, the state of a checkpointed region, transforms.
"""

import contextvars
import copy
import warnings

import pytest
import torch
from pairs import Net, Pair, close, options
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.utils.checkpoint import checkpoint

from ortmodule import ORTModule

X = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
NUMBER = contextvars.ContextVar("number", default=0)


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def branch(h):
    """Python looks at data: a part ends."""
    return h * 2 if h.sum() > 1e9 else h


# --- what forward writes to after eager has saved it -------------------------------------------


def own_result(net, x):
    return net.first(x).exp().add_(1)


def layers_input(net, x):
    h = net.first(x)
    y = net.second(h)
    h.mul_(2)
    return y


def factor(net, x):
    h = net.first(x)
    y = h * net.first(x * 2)
    h.add_(1)
    return y


def through_a_view(net, x):
    h = net.first(x)
    y = h.square()
    h[0].zero_()
    return y


def a_row(net, x):
    h = net.first(x).exp()
    h[0] = 0
    return h


def without_gradients(net, x):
    h = net.first(x).tanh()
    y = h * 3
    with torch.no_grad():
        h.add_(1)
    return y + h


def detached(net, x):
    h = net.first(x)
    y = net.second(h)
    h.detach().mul_(2)
    return y


def plain_factor(net, x):
    b = torch.ones(4)
    y = net.first(x) * b
    b.add_(1)
    return y


def mask(net, x):
    where = x[:, :1] > 0
    y = torch.where(where, net.first(x), net.first(x * 2))
    where.logical_not_()
    return y


def positions(net, x):
    i = torch.tensor([0, 1])
    y = net.first(x)[i]
    i.add_(1)
    return y


def the_input(net, x):
    y = net.first(x)
    x.add_(1)
    return y


def data(net, x):
    """Eager does not see it."""
    h = net.first(x)
    y = net.second(h.sin())
    h.data.mul_(2)
    return y


def a_sum(net, x):
    """Eager saves nothing."""
    h = net.first(x)
    y = h + 1
    h.add_(1)
    return y + h


def before_it_is_read(net, x):
    return net.second(net.first(x).mul_(2).sin())


def in_parts(net, x):
    h = branch(net.first(x).tanh().exp() * 2)
    y = h.sin().exp()
    y.add_(1)
    return y.exp().cos()


WRITTEN = [
    own_result, layers_input, factor, through_a_view, a_row, without_gradients, detached,
    plain_factor, mask, positions, the_input, in_parts,
]  # fmt: skip
ALLOWED = [data, a_sum, before_it_is_read]


@pytest.mark.parametrize("forward", WRITTEN + ALLOWED, ids=lambda f: f.__name__)
def test_a_write_to_what_eager_saved(forward):
    pair = Pair(Net(forward))
    for _ in range(2):
        raised = []
        for module in (pair.eager, pair.ours):
            module.zero_grad()
            y = module(X.clone())
            try:
                y.square().sum().backward()
            except RuntimeError as error:
                assert "modified by an inplace operation" in str(error)
                raised.append(module)
        assert len(raised) == (2 if forward in WRITTEN else 0)
        if not raised:
            pair.compare()
    if forward in (a_sum, before_it_is_read):
        pair.through_engine()
    if forward in WRITTEN[:-1]:
        pair.fell_back("forward writes in place to what its own backward reads")


def test_a_write_without_gradients_is_captured():
    pair = Pair(Net(own_result))
    with torch.no_grad():
        for _ in range(2):
            pair.step(X, backward=False)
    pair.through_engine()


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_no_steps(kind):
    layer = kind(3, 4)
    ours = ORTModule(copy.deepcopy(layer), options())
    for module in (layer, ours):
        module(torch.ones(5, 2, 3))
        module(torch.ones(4, 2, 3))
        with pytest.raises(RuntimeError, match="sequence length to be larger than 0 in RNN"):
            module(torch.ones(0, 2, 3))
    assert ours.explain().captures


def test_two_values_for_one_argument():
    class Varied(nn.Module):
        def forward(self, x, *args, **kwargs):
            return x * 2

    ours = ORTModule(Varied(), options())
    ours(X)
    with pytest.raises(TypeError, match="multiple values for argument 'x'"):
        ours(X, x=X)


# --- what torch has no gradient of ---------------------------------------------------------------

ROWS = torch.tensor([[0, 0], [1, 1], [2, 2], [3, 2], [0, 1]])
WITHOUT_GRADIENT = {
    "drawn": (lambda h: h.bernoulli(0.5), "bernoulli is not implemented"),
    "scatter": (lambda h: h.sin().scatter(1, ROWS, h), "invalid gradient"),
    "scatter_add": (lambda h: h.sin().scatter_add(1, ROWS, h), "invalid gradient"),
    "mean": (lambda h: h.sin().scatter_reduce(1, ROWS, h, "mean"), "invalid gradient"),
    "largest": (lambda h: h.sin().scatter_reduce(1, ROWS, h, "amax"), "must match"),
}  # fmt: skip


@pytest.mark.parametrize("name", WITHOUT_GRADIENT)
def test_a_backward_that_torch_has_not(name):
    """As of a source that is larger than its index."""
    forward, match = WITHOUT_GRADIENT[name]
    pair = Pair(Net(lambda net, x: forward(net.first(x))))
    for _ in range(2):
        for module in (pair.eager, pair.ours):
            module.zero_grad()
            with pytest.raises(RuntimeError, match=match):
                module(X).square().sum().backward()
        pair.compare()


# --- what eager's backward has done when a user's code raises -----------------------------------


class Raises(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, dy):
        raise ValueError("no gradient today")


def hooked(net, x):
    h = net.first(x).tanh()
    h.register_hook(lambda dh: Raises.backward(None, dh))
    return net.second(h)


RAISING = {
    "before": lambda net, x: net.second(Raises.apply(net.first(x))),
    "first": lambda net, x: net.second(net.first(Raises.apply(x))),
    "beside": lambda net, x: Raises.apply(net.first(x)) + net.first(x).sum() * net.second.bias[0],
    "last": lambda net, x: net.first(x).sum() * net.second.bias[0] + Raises.apply(net.first(x)),
    "read later": lambda net, x: net.second(
        Raises.apply(net.first(x)).tanh() * net.first.weight[:, 0]
    ),
    "a hook": hooked,
}


@pytest.mark.parametrize("name", RAISING)
def test_gradients_from_before_an_error_stay(name):
    pair = Pair(Net(RAISING[name]))
    for _ in range(2):
        for module in (pair.eager, pair.ours):
            module.zero_grad()
            x = X.clone().requires_grad_()
            with pytest.raises(ValueError, match="no gradient today"):
                module(x).square().sum().backward()
        pair.compare()
    assert pair.report.captures


# --- what forward sets besides -------------------------------------------------------------------


def counts(net, x):
    NUMBER.set(NUMBER.get() + 1)
    return net.first(x)


def counts_in_parts(net, x):
    h = branch(net.first(x).tanh().exp() * 2)
    NUMBER.set(NUMBER.get() + 1)
    return net.second(h.sin())


@pytest.mark.parametrize("forward", [counts, counts_in_parts])
@pytest.mark.parametrize("fallback", ["report", "error"])
def test_a_context_variable_is_set_once(forward, fallback):
    ours = ORTModule(Net(forward), options(fallback=fallback))
    for k in range(3):
        NUMBER.set(k)
        try:
            ours(X)
        except Exception:
            assert fallback == "error" and NUMBER.get() == k
        else:
            assert NUMBER.get() == k + 1


class Counting(nn.Module):
    def __init__(self, reentrant, write):
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(3, 4), nn.Linear(4, 2), nn.BatchNorm1d(4)
        self.register_buffer("count", torch.zeros(()))
        self.reentrant, self.write = reentrant, write

    def forward(self, x):
        h = branch(checkpoint(self.inside, x * 2, use_reentrant=self.reentrant))
        return self.second(h.sin().cos())

    def inside(self, x):
        return self.write(self, self.first(x).tanh())


def adds(net, h):
    net.count.add_(1)
    return h * net.count


def sets(net, h):
    net.count = net.count + 1
    return h * net.count


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("write", [adds, sets, lambda net, h: net.norm(h)])
def test_a_checkpointed_region_writes_twice(write, reentrant):
    pair = Pair(Counting(reentrant, write))
    for _ in range(3):
        for module in (pair.eager, pair.ours):
            module.zero_grad()
            module(X.clone().requires_grad_()).square().sum().backward()
        pair.compare()


TEXTS = {
    "length": lambda x: len(str(x.sum().item())),
    "format": lambda x: float(f"{x[0, 0].item():.2f}"),
    "percent": lambda x: float("%.1f" % x[0, 0].item()),  # noqa: UP031
    "method": lambda x: float("{:.3f}".format(x[0, 0].item())),  # noqa: UP032
    "repr": lambda x: len(repr(x.double()[0, 0].item())),
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("cut", [False, True])
def test_the_text_of_a_float(name, cut):
    def forward(net, x):
        h = net.first(x).tanh().exp() * 2
        return (branch(h) if cut else h) * TEXTS[name](x)

    pair = Pair(Net(forward))
    for scale in (1.0, 0.37, 3.0):
        pair.step(X * scale)


def of_each_row(net, x):
    def loss(parameters, row):
        return functional_call(net.first, parameters, (row,)).tanh().square().sum()

    h = branch(x.tanh().exp() * 2)
    slopes = vmap(grad(loss), (None, 0))(dict(net.first.named_parameters()), h)
    return net.second(net.first(h)) * slopes["weight"].sum()


def test_transforms_beside_a_branch():
    pair = Pair(Net(of_each_row))
    for _ in range(2):
        pair.step(X)
    torch.randn(3)  # no transform of ours is left


@pytest.mark.parametrize("of", ["the input", "a result", "a parameter"])
def test_is_pinned(of):
    def forward(net, x):
        h = net.first(x)
        asked = {"the input": x, "a result": h, "a parameter": net.first.weight}[of]
        return h * (2 if asked.is_pinned() else 3)

    pair = Pair(Net(forward))
    pair.step(X)
    close(pair.ours(X), pair.eager(X), "the output")
