"""Tensors that a module holds and that are no plain dense ones: their calls are eager's."""

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from ortmodule import ORTModule

VALUES = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 2.0], [0.0, 3.0, 1.0]])
KINDS = {
    "coo": lambda: VALUES.to_sparse(),
    "not coalesced": lambda: torch.sparse_coo_tensor([[0, 0, 1], [1, 1, 2]], [1.0, 2, 3], (3, 3)),
    "csr": lambda: VALUES.to_sparse_csr(),
    "mkldnn": lambda: VALUES.to_mkldnn(),
    "named": lambda: VALUES.rename("rows", "columns"),
    "of two": lambda: TwoTensor(VALUES.clone(), VALUES.clone()),
    "zeros without memory": lambda: torch._efficientzerotensor((3, 3)),
}
USES = {
    "product": lambda held, y: held @ y,
    "read": lambda held, y: y * len(held),
    "returned": lambda held, y: (y, held),
}


class Holder(nn.Module):
    def __init__(self, held, use, registered):
        super().__init__()
        self.linear, self.use = nn.Linear(3, 3), use
        if registered:
            self.register_buffer("held", held)
        else:
            self.held = held

    def forward(self, x):
        return self.use(self.held, self.linear(x))


def outcomes(model, module):
    found = []
    for _ in range(3):
        module.zero_grad()
        try:
            y = model(torch.linspace(-1, 1, 9).reshape(3, 3))
        except RuntimeError as error:
            found.append(str(error)[:40])
            continue
        first = y[0] if isinstance(y, tuple) else y
        if first.requires_grad and type(first) is torch.Tensor:
            first.rename(None).sum().backward()
        gradients = [p.grad for p in module.parameters()]
        same_object = isinstance(y, tuple) and y[1] is module.held
        found.append([type(first), first.names, same_object, first.detach(), *gradients])
    return found


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("registered", [True, False])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", KINDS)
def test_calls_are_eagers(kind, use, registered):
    torch.manual_seed(0)
    module = Holder(KINDS[kind](), USES[use], registered)
    expected = outcomes(module, module)
    model = ORTModule(module)
    for ours, theirs in zip(outcomes(model, module), expected, strict=True):
        if isinstance(theirs, str) or issubclass(theirs[0], TwoTensor):
            assert str(ours) == str(theirs)
        else:
            assert ours[:3] == theirs[:3]
            torch.testing.assert_close(
                [t if t is None else t.rename(None) for t in ours[3:]],
                [t if t is None else t.rename(None) for t in theirs[3:]],
            )


@pytest.mark.parametrize("registered", [True, False])
def test_one_that_forward_does_not_read_is_no_reason(registered):
    model = ORTModule(Holder(VALUES.to_sparse(), lambda held, y: y.tanh(), registered))
    model(torch.ones(2, 3)).sum().backward()
    assert model.explain().captures == 1
