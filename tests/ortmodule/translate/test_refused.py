"""Calls that only torch's kernels refuse, not the fake ones that a trace runs, raise as in eager.

Each has arguments that are right, and others, where the first call may have made a capture.
"""

import pytest
import torch
from captured import Function
from torch import nn
from torch.nn import functional as F

from ortmodule import ORTModule

RANDOM = torch.Generator().manual_seed(0)


def floats(*shape):
    return torch.rand(*shape, generator=RANDOM)


def whole(*shape, dtype=torch.int64):
    return torch.zeros(*shape, dtype=dtype)


def put(x, mask):
    return torch.index_put(x, (mask,), torch.zeros(()))


W, GATES = floats(3, 3), floats(12, 3)
CASES = {
    "addmm": (lambda b, x: torch.addmm(b, x, W), (floats(5, 3), floats(5, 3)), [
        (floats(5, 3), floats(1, 3)), (floats(1, 4, 3), floats(4, 3)),
    ]),
    "baddbmm": (lambda b, x: torch.baddbmm(b, x, x.mT), (floats(2, 3, 3), floats(2, 3, 4)), [
        (floats(2, 3, 3), floats(1, 3, 4)),
    ]),
    "addbmm": (lambda b, x: torch.addbmm(b, x, x.mT), (floats(3, 3), floats(2, 3, 4)), [
        (floats(3, 3), floats(2, 1, 4)),
    ]),
    "addmv": (lambda b, x, v: torch.addmv(b, x, v), (floats(5), floats(5, 3), floats(3)), [
        (floats(5), floats(1, 3), floats(3)), (floats(1, 5), floats(5, 3), floats(3)),
    ]),
    "addr": (lambda b, x, y: torch.addr(b, x, y), (floats(5, 3), floats(5), floats(3)), [
        (floats(5, 3), floats(1), floats(3)),
    ]),
    "weights of a loss": (
        lambda x, w: F.binary_cross_entropy(x, x.detach(), w), (floats(5, 3), floats(5, 3)), [
            (floats(1, 3), floats(5, 3)), (floats(5, 3), floats(1, 5, 3)),
        ]),
    "weights of classes": (
        lambda x, w: F.binary_cross_entropy_with_logits(x, x.detach(), pos_weight=w),
        (floats(5, 3), floats(3)), [(floats(1, 3), floats(5, 3))],
    ),
    "logits of other sizes": (
        lambda x, w: F.binary_cross_entropy_with_logits(x, x.detach(), w),
        (floats(5, 3), floats(3)), [(floats(5, 3), floats(1, 5, 3))],
    ),
    "smooth_l1": (lambda x: F.smooth_l1_loss(x, W, beta=-1.0), None, [(floats(3, 3),)]),
    "classes of places": (
        lambda x, y: F.nll_loss(x, y), (floats(2, 3, 2, 3), whole(2, 2, 3)), [
            (floats(2, 3, 2, 3), whole(2, 2, 2)), (floats(2, 3, 2, 3), whole(2, 1, 3)),
            (floats(2, 3, 2, 3), whole(2, 2, 3, dtype=torch.bool)),
        ]),
    "max": (lambda x: x.detach().max() * x.sum(), (floats(5, 3),), [(floats(0, 3),)]),
    "min": (lambda x: x.detach().min() * x.sum(), (floats(5, 3),), [(floats(5, 0),)]),
    "a mask": (put, (floats(5, 3), whole(5, dtype=torch.bool)), [
        (floats(5, 3), whole(1, dtype=torch.bool)), (floats(5, 3), whole(5, 1, dtype=torch.bool)),
        (floats(1, 3), whole(5, dtype=torch.bool)),
    ]),
    "masks of positions": (
        lambda x, i: x.index_reduce(0, i, W, "amax"), (floats(5, 3), whole(3)), [
            (floats(5, 3), whole(3, dtype=torch.bool)),
        ]),
    "output_padding": (
        lambda x: F.conv_transpose1d(x, W[..., None], stride=2, output_padding=2), None,
        [(floats(2, 3, 4),)],
    ),
    "reflect of bools": (
        lambda x: F.pad(x, (1, 0, 2, 1), "reflect"), (floats(1, 3, 4),), [
            (whole(1, 3, 4, dtype=torch.bool),), (whole(1, 5, 6, dtype=torch.bool),),
        ]),
    "halves of an image": (
        lambda x: F.interpolate(x, size=(3, 2), mode="bilinear", antialias=True),
        (floats(1, 2, 5, 6),), [(floats(1, 2, 5, 6).half(),), (floats(1, 2, 5, 6).bfloat16(),)],
    ),
    "halves of a pool": (
        lambda x: F.local_response_norm(x, 3), (floats(1, 2, 5, 6),), [
            (floats(1, 2, 5, 6).half(),), (floats(1, 2, 5, 6).bfloat16(),),
        ]),
    "more cut off than there is": (
        lambda x: F.pad(x, (-2, 3)), (floats(4, 3),), [(floats(4, 0),), (floats(4, 1),)],
    ),
    "sort": (lambda x: torch.sort(x, 6)[0], None, [(floats(5, 3),)]),
    "argsort": (lambda x: torch.argsort(x, -3) * x.sum(), (floats(2, 5, 3),), [(floats(5, 3),)]),
    "softmax": (lambda x: torch.softmax(x, 7), None, [(floats(()),)]),
    "select_scatter": (lambda x: torch.select_scatter(x, W[0], 8, 2), None, [(floats(3, 3),)]),
    "gather": (lambda x, i: x.gather(0, i), (floats(()), whole(())), [(floats(()), whole(()) + 9)]),
    "lstm_cell": (
        lambda x, h: torch.lstm_cell(x, (h, h), GATES, GATES)[0], (floats(4, 3), floats(4, 3)), [
            (floats(4, 3), floats(1, 3)), (floats(1, 3), floats(4, 3)),
        ]),
    "gru_cell": (
        lambda x, h: torch.gru_cell(x, h, GATES[:9], GATES[:9]), (floats(4, 3), floats(4, 3)), [
            (floats(4, 3), floats(1, 3)), (floats(1, 3), floats(4, 3)),
        ]),
}  # fmt: skip


def error_of(module: nn.Module, call: tuple) -> tuple[type, str]:
    with pytest.raises(Exception) as caught:
        module(*call)
    return caught.type, str(caught.value)


@pytest.mark.filterwarnings("ignore:ORTModule runs this module in eager")
@pytest.mark.parametrize("name", CASES)
def test_what_kernels_refuse_raises_eagers_error(name):
    function, right, wrong = CASES[name]
    module = Function(function)
    for call in wrong:
        want, fresh, used = error_of(module, call), ORTModule(module), ORTModule(module)
        assert error_of(fresh, call) == want
        if right is not None:
            torch.testing.assert_close(used(*right), module(*right))
            assert error_of(used, call) == want


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[1] is not None])
def test_right_calls_are_captured(name):
    function, right, _ = CASES[name]
    model = ORTModule(Function(function))
    torch.testing.assert_close(model(*right), function(*right))
    assert model.explain().captures == 1


SLOPES = {
    "elu_": lambda x: F.elu_(x * 1, -1.0),
    "elu_ of a view": lambda x: F.elu_((x * 1)[:, 0], -1.0),
    "celu_": lambda x: F.celu_(x * 1, -1.0),
    "leaky_relu_": lambda x: F.leaky_relu_(x * 1, -0.5),
    "rrelu_": lambda x: F.rrelu_(x * 1, -0.5, -0.1),
}


@pytest.mark.filterwarnings("ignore:ORTModule runs this module in eager")
@pytest.mark.parametrize("name", SLOPES)
def test_what_backward_refuses_in_place_raises_eagers_error(name):
    def backward(module):
        module(torch.randn(4, 5, generator=RANDOM).requires_grad_()).sum().backward()

    def forward(module):
        return module(torch.ones(4, 5))

    module = Function(SLOPES[name])
    assert error_of(lambda: backward(ORTModule(module)), ()) == error_of(
        lambda: backward(module), ()
    )
    ours = ORTModule(module)
    torch.testing.assert_close(forward(ours), forward(module))
    assert ours.explain().captures == 1  # nothing is refused that has no gradient
