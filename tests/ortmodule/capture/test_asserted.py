"""Numbers that Python reads out of tensors: what an assert says, and what is made of them."""

import asserting
import pytest
import torch
from pairs import Net, Pair

from ortmodule.errors import NotCapturable


def batch(size=5):
    return torch.randn(size, 3, generator=torch.Generator().manual_seed(size))


@pytest.mark.parametrize("function", asserting.ALL)
def test_what_an_assert_says_of_data_is_a_check(function):
    pair = Pair(Net(function))
    for size in (5, 4):
        pair.step(batch(size), torch.tensor([1, 2]))
    pair.through_engine(captures=1)
    for module in (pair.eager, pair.ours):
        with pytest.raises(AssertionError):
            module(batch(), torch.tensor([-1, 9]))
    pair.step(batch(), torch.tensor([1, 3]))


def test_a_branch_beside_an_assert_may_go_either_way():
    pair = Pair(Net(asserting.asserted_beside))
    for most in (2, 9, 3):
        pair.step(batch(), torch.tensor([1, most]))
    pair.fell_back("data-dependent")


def test_a_number_that_torch_is_told_is_checked():
    def function(net, x, n):
        torch._check(n.sum().item() == 3)
        return net.second(net.first(x)) * n.sum().item()

    pair = Pair(Net(function))
    pair.step(batch(), torch.tensor([1, 2]))
    for module in (pair.eager, pair.ours):
        with pytest.raises(RuntimeError, match="Expected cond to be True"):
            module(batch(), torch.tensor([1, 1]))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_an_integer_that_is_read_is_a_value(dtype):
    pair = Pair(Net(lambda net, x, n: net.second(net.first(x) * n.max().item()) + n.sum().item()))
    for most in (2, 9, 3):
        pair.step(batch(), torch.tensor([1, most], dtype=dtype))
    pair.through_engine(captures=1)


def test_sizes_that_are_read_are_cut_around():
    def function(net, x, n):
        first, second = net.first(x).tanh().sin().cos().split(n.tolist(), 1)
        return net.second(torch.cat([second, first], 1).sin().cos().tanh())

    pair = Pair(Net(function))
    for low in (1, 2, 1):
        pair.step(batch(), torch.tensor([low, 4 - low]))
    assert len(pair.report.parts) >= 2
    pair.fell_back("read out of a tensor")


@pytest.mark.parametrize("function", [asserting.asserted_most, asserting.asserted_number])
def test_a_file_has_no_such_checks(function, tmp_path):
    pair = Pair(Net(function))
    with pytest.raises(NotCapturable, match="a file has no checks"):
        pair.ours.export_onnx(tmp_path / "net.onnx", (batch(), torch.tensor([1, 2])))


def test_what_fails_where_it_is_told_of_the_trace_is_traced_as_eager_runs_it():
    def function(net, x, mask=None):
        if mask is None and not torch.compiler.is_compiling():
            mask = torch.ones_like(x)
        return net.second(net.first(x * mask))

    pair = Pair(Net(function))
    for size in (5, 5, 4):
        pair.step(batch(size))
    pair.through_engine(captures=1)


def test_a_size_that_forward_stores_is_the_number_that_it_was():
    def function(net, x):
        if net.size is None or net.size != x.shape[0]:
            net.size, net.kinds = x.shape[0], torch.ones(x.shape[0], 1)
        return net.second(net.first(x) * net.kinds)

    pair = Pair(Net(function))
    pair.each(lambda m: setattr(m, "size", None))
    for size in (5, 5, 5, 4, 4):
        pair.step(batch(size))
    pair.through_engine(captures=3)  # two sizes, and the call that stored the second


def test_a_buffer_that_is_made_for_sizes_is_set_by_eager():
    def function(net, x):
        if net.table.shape[0] != x.shape[0]:
            net.table = torch.arange(x.shape[0], dtype=torch.float32).view(-1, 1) / 5
        return net.second(net.first(x) * net.table)

    pair = Pair(Net(function))
    pair.each(lambda m: m.register_buffer("table", torch.zeros(1, 1)))
    for size in (5, 5, 5):
        pair.step(batch(size))
    pair.through_engine(captures=1)
    assert len(pair.report.warm_ups) == 1
