"""What a caller writes to between forward and backward, and memory that outputs share."""

import pytest
import torch
import torch.nn.functional as F
from pairs import Net, Pair, close
from torch import nn

from ortmodule import ORTModule

pytestmark = pytest.mark.filterwarnings("ignore:ORTModule runs this module in eager")
X = torch.randn(5, 3)


def outcomes(pair, act):
    """What `act(module)` raises for eager and for ours, or None; gradients agree if nothing."""
    errors = []
    for module in (pair.eager, pair.ours):
        module.zero_grad()
        try:
            act(module)
            errors.append(None)
        except RuntimeError as error:
            errors.append(str(error))
    assert (errors[0] is None) == (errors[1] is None), errors
    if errors[0] is None:
        pair.compare()
    else:
        assert all("modified by an inplace operation" in error for error in errors)
    pair.through_engine()
    return errors


ACTIVATIONS = {
    "tanh": nn.Tanh(), "softmax": nn.Softmax(-1), "log_softmax": nn.LogSoftmax(-1),
    "sigmoid": nn.Sigmoid(), "relu": nn.ReLU(), "gelu": nn.GELU(), "silu": nn.SiLU(),
    "elu": nn.ELU(), "softplus": nn.Softplus(), "linear": nn.Linear(4, 2),
    "layer_norm": nn.LayerNorm(4),
}  # fmt: skip
FUNCTIONS = {
    "exp": torch.exp, "sqrt": lambda h: h.abs().sqrt(), "rsqrt": lambda h: h.abs().rsqrt(),
    "reciprocal": torch.reciprocal, "square": torch.square, "log": lambda h: h.abs().log(),
    "pow": lambda h: h.abs() ** 1.5, "amax": lambda h: h.amax(-1), "cumsum": lambda h: h.cumsum(0),
    "norm": lambda h: h.norm(dim=-1),
    "div": lambda h: 1.0 / (h.abs() + 1),
    "view": lambda h: h.exp().view(-1), "transposed": lambda h: h.tanh().t(),
}  # fmt: skip
SAVED = {"tanh", "softmax", "log_softmax", "sigmoid", "relu", "exp", "sqrt", "rsqrt", "reciprocal",
         "amax", "norm", "view", "transposed"}  # fmt: skip


@pytest.mark.parametrize("what", [*ACTIVATIONS, *FUNCTIONS])
def test_output_edited_before_backward(what):
    """Eager's gradient, or an error exactly where eager saved what was written to."""
    last = ACTIVATIONS.get(what)
    function = FUNCTIONS.get(what)
    net = Net(lambda net, x: net.last(net.first(x)) if net.last else function(net.first(x)))
    net.last = last

    def act(module):
        y = module(X)
        y.mul_(2)
        y.pow(3).sum().backward()

    errors = outcomes(Pair(net), act)
    if what in SAVED:
        assert errors[0] is not None


# Where eager's formula reads the result and ours what it was made of, and where the result is a
# view of what eager saved (ours is laid out anew), ours gives the gradient without the write.
UNSEEN = {"rsqrt", "transposed"}


@pytest.mark.parametrize("what", [k for k in (*ACTIVATIONS, *FUNCTIONS) if k not in UNSEEN])
def test_data_of_an_output_edited_before_backward(what):
    """Eager does not see such a write: if it saved the output, its backward uses the new data."""
    last, function = ACTIVATIONS.get(what), FUNCTIONS.get(what)
    net = Net(lambda net, x: net.last(net.first(x)) if net.last else function(net.first(x)))
    net.last = last

    def act(module):
        y = module(X)
        y.data.mul_(2)
        y.sum().backward(retain_graph=True)
        y.data.mul_(2)
        y.sum().backward()

    assert outcomes(Pair(net), act)[0] is None


def test_output_resized_before_backward():
    """An owner may give the memory away; the backward does not run on what is no longer there."""
    pair = Pair(nn.Sequential(nn.Linear(3, 4), nn.Tanh()))
    y = pair.ours(X)
    loss = y.sum()
    y.untyped_storage().resize_(0)
    with pytest.raises(
        RuntimeError, match="which the backward reads, has 0 bytes now, expected 80"
    ):
        loss.backward()


@pytest.mark.parametrize("edited", [0, 1, 2])
@pytest.mark.parametrize("used", [(0,), (1,), (2,), (0, 1, 2)])
def test_one_of_several_outputs_edited(edited, used):
    """An output may be saved by what another was made of; only what the backward runs counts."""
    net = Net(lambda net, x: (h := net.first(x), e := h.exp(), net.second(e)))

    def act(module):
        outputs = module(X)
        losses = [outputs[i].square().sum() for i in used]
        with torch.no_grad():
            outputs[edited].mul_(2)
        sum(losses).backward()

    outcomes(Pair(net), act)


def test_output_edited_through_a_view():
    def act(module):
        y = module(X)
        loss = y.sum()
        y.detach()[0].zero_()
        loss.backward()

    assert outcomes(Pair(nn.Sequential(nn.Linear(3, 2), nn.Tanh())), act)[0] is not None


def test_output_dropped_before_backward():
    pair = Pair(nn.Sequential(nn.Linear(3, 2), nn.Tanh()))
    for module in (pair.eager, pair.ours):
        loss = module(X).sum()
        scratch = [torch.full((5, 2), float(i)) for i in range(50)]
        loss.backward()
        del scratch
    pair.compare()


@pytest.mark.parametrize("what", ["input", "weight", "bias", "scale", "table", "mask"])
def test_inputs_edited_before_backward(what):
    """What eager saves may not change; of what it does not, ours may read no new value."""

    def forward(net, x, mask):
        hidden = net.first(x).masked_fill(mask > 0, 0.5) * net.scale.exp()
        return net.second(torch.relu(hidden) + net.table)

    net = Net(forward)
    net.scale, net.table = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))
    pair = Pair(net)
    inner = {id(pair.eager): pair.eager, id(pair.ours): pair.twin}

    def act(module):
        given = {"input": X.clone(), "mask": (torch.arange(4) % 2).expand(5, 4).clone()}
        y = module(given["input"], given["mask"])
        net = inner[id(module)]
        given |= {"weight": net.second.weight, "bias": net.first.bias}
        given |= {"scale": net.scale, "table": net.table}
        with torch.no_grad():
            given[what].mul_(2)
        y.square().sum().backward()

    outcomes(pair, act)


SHARED = {
    "input": lambda net, x: (net.first(x), x),
    "view_of_input": lambda net, x: (net.first(x), x.view(-1)),
    "row_of_input": lambda net, x: (net.first(x), x[1]),
    "last_row_of_input": lambda net, x: (net.first(x), x[x.shape[0] - 1 :]),
    "transposed_input": lambda net, x: (net.first(x), x.t()),
    "split_of_input": lambda net, x: (net.first(x), *x.split(1, dim=1)),
    "reshaped_input": lambda net, x: (net.first(x), x.reshape(3, -1)),
    "expanded_input": lambda net, x: (net.first(x), x[:, None].expand(-1, 2, -1)),
    "detached_input": lambda net, x: (net.first(x), x.detach()),
    "parameter": lambda net, x: (net.first(x), net.second.weight, net.second.weight.t()),
    "buffer": lambda net, x: (net.first(x), net.table[0]),
    "output_and_view": lambda net, x: (h := net.first(x), h.view(-1)),
    "output_and_row": lambda net, x: (h := net.first(x), h[0], h.t()),
    "two_views": lambda net, x: ((h := net.first(x)).t(), h.view(-1)),
    "two_halves": lambda net, x: net.first(x).chunk(2, dim=-1),
    "detached_output": lambda net, x: (h := net.first(x), h.detach()),
    "output_twice": lambda net, x: (h := net.first(x), h),
    "dropout_off": lambda net, x: (h := net.first(x), F.dropout(h, 0.5, False)),
    "copies": lambda net, x: (h := net.first(x), h.clone(), x.clone(), x + 0),
    "written_input": lambda net, x: (x.mul_(2), x[0], net.first(x)),
}


def aliases(tensors):
    """Which tensors are one object, and which share elements: by the addresses of each."""
    places = []
    for t in tensors:
        indices = torch.ones(t.shape).nonzero() * torch.tensor(t.stride())
        places.append({t.data_ptr() + 4 * int(i) for i in indices.sum(-1)})
    same = [[a is b for b in tensors] for a in tensors]
    return same, [[len(a & b) for b in places] for a in places]


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("what", SHARED)
def test_outputs_share_memory_as_in_eager(what, grad):
    """With the inputs and with each other: identity, overlap, writes, gradients; any batch size."""
    net = Net(SHARED[what])
    net.register_buffer("table", torch.ones(2, 3))
    pair = Pair(net)
    for batch in (5, 4):
        seen = []
        for module, inner in ((pair.eager, pair.eager), (pair.ours, pair.twin)):
            module.zero_grad()
            x = torch.arange(3.0 * batch).view(batch, 3)
            if grad and what != "written_input":
                x.requires_grad_()
            outputs = module(x)
            tensors = [*outputs, x, inner.second.weight, inner.table]
            sum((i + 1) * y.square().sum() for i, y in enumerate(outputs)).backward()
            gradient = x.grad
            if what not in ("expanded_input", "split_of_input", "two_halves"):  # eager refuses it
                with torch.no_grad():
                    outputs[-1].select(0, 0).fill_(7.0)
            values = [t.detach().clone() for t in tensors]
            needs = [t.requires_grad for t in tensors]
            seen.append((aliases(tensors), needs, [t.is_leaf for t in tensors], values, gradient))
        pair.compare()
        eager, ours = seen
        assert ours[:3] == eager[:3]
        for mine, theirs in zip(ours[3], eager[3], strict=True):
            close(mine, theirs, "a returned tensor")
        if gradient is not None:
            close(ours[4], eager[4], "the gradient of x")
    pair.through_engine(captures=1)


def test_a_returned_view_is_written_in_place():
    """A write through a view reaches the other output and its gradient."""
    pair = Pair(Net(lambda net, x: (h := net.first(x), h[0])))

    def act(module):
        whole, row = module(X)
        row.mul_(3)
        whole.square().sum().backward()

    outcomes(pair, act)


@pytest.mark.parametrize("change", ["to", "load_state_dict", "assign", "swap_tensors"])
def test_weights_can_be_swapped(change):
    model = ORTModule(nn.Linear(3, 2))
    x = torch.randn(4, 3)
    model(x).sum().backward()
    new = {name: value + 1 for name, value in model.state_dict().items()}
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        if change == "to":
            model.to(torch.float32)
            model.double().float()
        elif change == "swap_tensors":
            torch.utils.swap_tensors(model.weight, nn.Parameter(new["weight"]))
        else:
            model.load_state_dict(new, assign=change == "assign")
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    model.zero_grad()
    y = model(x)
    y.sum().backward()
    torch.testing.assert_close(y, nn.functional.linear(x, model.weight, model.bias))
    torch.testing.assert_close(model.weight.grad, x.sum(0).expand(2, 3))
    assert not model.explain().fallbacks


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x):
        return self.a(x), self.b(x).sqrt()


def test_a_backward_of_fewer_outputs_after_a_write_that_eager_allows():
    model, x = ORTModule(Heads()), X.abs() + 9
    with torch.no_grad():
        model.b.weight.abs_()
        model.b.bias.abs_()
    y, z = model(x)
    (y.sum() + z.sum()).backward()
    for _ in range(3):
        model.zero_grad()
        y, _ = model(x)
        with torch.no_grad():
            model.a.bias.add_(1)
        y.sum().backward()
        assert torch.equal(model.a.bias.grad, torch.full((2,), 5.0))
        assert model.b.weight.grad is None


def test_parts_of_one_split_have_one_node():
    class Split(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x):
            return self.linear(x).split(1, dim=1)

    called = []
    model = ORTModule(Split())
    first, second, _ = model(X)
    second.register_hook(called.append)
    first.sum().backward()
    assert called == [None]
    assert first.grad_fn is second.grad_fn
