"""The capture contract: what is captured, what is refused with which words, what is left behind."""

import random
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from captured import Function, captured, check, printed, run
from torch import nn
from torch.utils.checkpoint import checkpoint

from ortmodule import ORTModule
from ortmodule.calls.call import describe
from ortmodule.errors import Defect, NeedsCut, NotCapturable, WarmUp

X = torch.randn(4, 3)


class Linear(nn.Module):
    """A layer and a place for what a test wants forward to do."""

    def __init__(self, body=None):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("count", torch.zeros(()))
        self.scale = 2.0
        self.seen = []
        self.body = body

    def forward(self, x, *args, **kwargs):
        if self.body is not None:
            return self.body(self, x, *args, **kwargs)
        return self.linear(x) * self.scale


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, dy):
        return dy * 3


def refused(module, *args, **kwargs):
    """The refusal's error; afterwards the module must work in eager and hold no traced tensor."""
    with pytest.raises(NotCapturable) as caught:
        captured(module, *args, **kwargs)
    for tensor in [*module.parameters(), *module.buffers()]:
        assert type(tensor) in (nn.Parameter, torch.Tensor)
    return caught.value


# What is captured.


def test_sizes_are_symbolic():
    found = check(Linear(), X)
    assert found.sizes.dims[0] == ["batch", 3]
    assert set(found.bind([torch.randn(9, 3)]).values()) == {9}
    assert found.bind([torch.randn(9, 4)]) is None
    assert found.bind([torch.randn(1, 3)]) is None  # one specialises
    assert found.bind([torch.randn(3)]) is None
    assert captured(Linear(), X[:1]).bind([X]) is None


def test_relations_between_sizes_are_guards():
    found = check(Function(lambda x: x * 2 if x.shape[0] % 2 == 0 else x), X)
    assert found.bind([torch.randn(6, 3)]) and found.bind([torch.randn(5, 3)]) is None
    found = check(Function(lambda x, y: x + y), X, X.clone())
    assert found.bind([torch.randn(6, 3)] * 2) is not None
    assert found.bind([torch.randn(6, 3), torch.randn(4, 3)]) is None


def test_unparsed_guard_means_exact_sizes():
    from ortmodule.records.sizes import SizePredicate

    sizes = SizePredicate([["s0"]], ["f(L['tensors'][0].size()[0]) == 2"], {}, [(4,)])
    assert sizes.bind([(4,)]) == {"s0": 4} and sizes.bind([(5,)]) is None
    assert "cannot be parsed" in sizes.why_exact


def test_sizes_that_must_be_numbers_are_exact():
    weight = torch.randn(2, 3, 3)
    x = torch.randn(2, 3, 8)
    found = check(Function(lambda x, w: F.conv1d(x, w)), x, weight)
    assert found.bind([x, weight]) == {}
    assert found.bind([torch.randn(4, 3, 8), weight]) is None


def test_returned_sizes_and_constants():
    found = check(Function(lambda x: {"n": x.shape[0] * 2, "x": x + 1, "name": "a", "no": None}), X)
    assert found.result([X], [X], found.bind([X]))["n"] == 8


def test_untouched_input_is_passed_through():
    found = captured(Function(lambda x, y: (x, y + 1, x)), X, X.clone())
    tensors = [X, X.clone()]
    out = found.result(run(found, tensors), tensors, found.bind(tensors))
    assert out[0] is X and out[2] is X and len(found.graph.outputs) == 1


def test_tied_weights_are_one_input():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, x):
            return self.head(self.embed(x))

    found = check(Tied(), torch.tensor([1, 2]))
    assert [i.name for i in found.inputs if i.role == "parameter"] == ["embed.weight"]


def test_same_tensor_twice_is_one_input():
    found = check(Function(lambda x, y: x * y), X, X)
    assert [i.index for i in found.inputs] == [0]
    assert found.key != check(Function(lambda x, y: x * y), X, X.clone()).key


def test_constants_and_tensor_attributes():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.more = torch.ones(3), [torch.ones(3)]

        def forward(self, x):
            return x + self.table + self.more[0] + torch.tensor([1.0, 2.0, 3.0])

    found = check(Model(), X)
    assert sorted(i.name for i in found.inputs if i.role == "buffer") == ["more[0]", "table"]


def test_buffers_written_in_place_and_anew():
    def body(m, x):
        m.count.add_(x.sum())
        with torch.no_grad():
            m.count.mul_(2)
        return m.linear(x) + m.count

    found = check(Linear(body), X)
    assert [(w.name, w.target.shape) for w in found.write_backs] == [("count", ())]

    def assign(m, x):
        m.count = m.count + 1
        return m.linear(x) + m.count

    module = Linear(assign)
    assert [w.key for w in check(module, X).assigned] == ["count"]
    assert type(module.count) is torch.Tensor and float(module.count) == 0


def test_inputs_written_in_place():
    found = captured(Function(lambda x: x.add_(1) * 2), X.clone())
    assert [(w.target, w.name) for w in found.write_backs] == [(0, "input:arguments[0][0]")]


def test_views_written_in_place():
    def body(x):
        y = x * 1
        z = y.view(-1)
        z[2:5].add_(1)
        y.t()[0].zero_()
        y[:, 1].mul_(2)
        a, b = y.chunk(2)
        a.add_(b)
        y.transpose(0, 1).relu_()
        return y, z, a

    check(Function(body), X)


def test_no_grad_and_detach_stop_gradients():
    def body(m, x):
        with torch.no_grad():
            y = m.linear(x)
        return m.linear(x) * y, y, m.linear(x).detach()

    found = check(Linear(body), X)
    assert len(printed(found, "ort::StopGradient")) == 2
    with torch.no_grad():
        assert not printed(check(Linear(body), X), "ort::StopGradient")


def test_dropout_counts_in_program_order():
    module = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 3), nn.Dropout(0.25))
    found = captured(module, X)
    first, second = printed(found, "ort::Dropout")
    assert "{counter=0, ratio=0.5}" in first and "{counter=1, ratio=0.25}" in second
    assert [i.role for i in found.inputs].count("key") == 1 and found.random_nodes == 2
    assert not captured(module.eval(), X).random_nodes


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_is_a_marked_plain_call(reentrant):
    def body(m, x):
        return checkpoint(lambda v: F.gelu(m.linear(v)), x, use_reentrant=reentrant) + m.linear(x)

    found = check(Linear(body), X.clone().requires_grad_())
    marks = {
        op: [" again " in line for line in printed(found, op)] for op in ("Gelu", "ort::Linear")
    }
    assert marks == {"Gelu": [True], "ort::Linear": [True, False]}


def test_reentrant_checkpoint_without_a_gradient_to_start_from():
    """Eager gives nothing inside a gradient then, and says so."""
    body = lambda m, x: checkpoint(m.linear, x, use_reentrant=True)  # noqa: E731
    check(Linear(body), X)


def test_provenance():
    found = captured(nn.Sequential(nn.Linear(3, 3), Linear()), X)
    modules = [node.module for node in found.graph.nodes if node.op == "ort::Linear"]
    assert modules == ["0", "1.linear"]
    (where,) = [node.where for node in found.graph.nodes if node.op == "Mul"]
    assert re.search(rf"{re.escape(__file__)}:\d+", where)


def test_random_states_are_kept():
    module = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    captured(module, X)
    assert torch.equal(torch.get_rng_state(), states[0]) and random.getstate() == states[1]
    assert (np.random.get_state()[1] == states[2]).all()


class MaskedAttention(nn.Module):
    """Operands of several dtypes, which torch's kernel is asked about."""

    def forward(self, x, mask):
        return nn.functional.scaled_dot_product_attention(x, x, x, mask, dropout_p=0.5)


def test_a_question_to_a_kernel_draws_nothing():
    x, mask = torch.randn(1, 2, 4, 4), torch.ones(4, 4, dtype=torch.bool)
    state = torch.get_rng_state()
    captured(MaskedAttention(), x, mask)
    assert torch.equal(torch.get_rng_state(), state)


def test_nothing_stays_patched():
    import torch.utils.checkpoint as module

    def patched():
        return (
            torch.autograd.Function.__dict__["apply"],
            torch.autograd.Function.apply,
            torch.Tensor.register_hook,
            module._checkpoint_without_reentrant_generator,
            "lstm" in vars(torch._VF),
        )

    before = patched()
    captured(nn.LSTM(3, 3), torch.randn(2, 2, 3))
    refused(Function(lambda x: Doubled.apply(x, [x])), X)
    assert patched() == before


def test_other_threads_see_the_originals():
    import threading

    from ortmodule import devices
    from ortmodule.capture.replaced import patches

    results = []
    with patches.capturing(nn.Module(), devices.HOST, lambda _: False, told=True):
        thread = threading.Thread(target=lambda: results.append(Doubled.apply(X)))
        thread.start()
        thread.join()
    assert torch.equal(results[0], X * 2)


def test_a_scalar_that_forward_sets_once_settles():
    def body(m, x):
        if m.scale == 2.0:
            m.scale = 3.0
        return m.linear(x) * m.scale

    module = Linear(body)
    found = captured(module, X)
    assert module.scale == 3.0 and found.snapshot.changed() is None


def test_a_scalar_that_forward_sets_once_is_learnt_before_the_trace():
    """On tensors without data: the buffer that forward writes to is not touched by that."""

    def body(m, x):
        m.scale = 3.0
        m.count.add_(1)
        return m.linear(x) * m.scale

    module = Linear(body)
    kept, version = module.linear.weight, module.count._version
    captured(module, X)
    assert module.scale == 3.0
    assert module.linear.weight is kept and module.count._version == version


def test_a_scalar_that_decides_is_a_warm_up():
    """What the first call computes is not what a capture in the state that it leaves would."""

    def body(m, x):
        scale, m.scale = m.scale, 3.0
        return m.linear(x) * scale

    module = Linear(body)
    with pytest.raises(WarmUp, match="scale was 2.0, is 3.0"):
        captured(module, X)
    assert module.scale == 2.0


def test_a_branch_on_data_in_eager_alone():
    """A trace that is told it is one would leave it out; the user's code is not told."""

    def body(m, x):
        if not torch.compiler.is_compiling() and x.sum().item() > 1e9:
            return x
        return m.linear(x) * m.scale

    assert isinstance(refused(Linear(body), X), NeedsCut)


def test_input_in_the_middle_of_a_graph():
    x = X.clone().requires_grad_() * 2
    found = captured(Linear(), x)
    assert found.outputs[0].requires_grad and all(i.requires_grad for i in found.inputs)


# What is refused.


def test_counters_in_forward():
    def body(m, x):
        m.scale += 1
        return m.linear(x)

    module = Linear(body)
    error = refused(module, X)
    assert "forward writes to an attribute: scale was 2.0, is 3.0" in str(error)
    assert error.file == __file__ and module.scale == 2.0


def test_tensors_kept_in_attributes():
    def body(m, x):
        m.seen.append(x)
        return m.linear(x)

    module = Linear(body)
    assert "seen[0] was not there, is a" in str(refused(module, X))
    assert module.seen == []


def test_hooks():
    def a_hook(*_):
        return None

    module = nn.Sequential(Linear())
    handle = module[0].linear.register_full_backward_hook(a_hook)
    assert "enters" not in captured(module, X).graph.text()  # X requires no gradient
    module = nn.Sequential(Linear())
    handle = module[0].linear.register_backward_hook(a_hook)
    error = refused(module, X)
    assert "register_backward_hook" in str(error) and error.module == "0.linear"
    handle.remove()
    handle = nn.modules.module.register_module_forward_hook(a_hook)
    try:
        assert "a global module hook is set" in str(refused(module, X))
    finally:
        handle.remove()


def test_tensor_hooks():
    def body(m, x):
        y = m.linear(x)
        y.register_hook(lambda g: g * x)
        return y

    error = refused(Linear(body), X)
    assert "a hook that reads a FakeTensor that it made" in str(error) and error.file == __file__
    with torch.no_grad():
        error = refused(Linear(body), X)
    assert "cannot register a hook on a tensor that doesn't require gradient" in str(error)


def test_custom_function():
    bound = Doubled.apply
    for function in (lambda x: Doubled.apply(x), lambda x: bound(x)):
        assert "Doubled" in captured(Function(function), X).graph.text()
    error = refused(Function(lambda x: Doubled.apply(x, [x])), X)
    assert "a list that it has made to the autograd.Function Doubled" in str(error)
    assert error.file == __file__


def test_devices_and_layouts():
    with pytest.raises(NotCapturable, match="is on meta, expected cpu"):
        captured(Linear().to("meta"), X)
    assert "expected torch.strided" in str(refused(Function(lambda x: x), X.to_sparse()))


def test_subclasses():
    class Odd(torch.Tensor):
        pass

    assert "is a Odd, expected a torch.Tensor" in str(refused(Linear(), X.as_subclass(Odd)))


def test_half_complex_values():
    error = refused(Function(lambda x: x.real), torch.ones(3, dtype=torch.complex32))
    assert "has dtype torch.complex32" in str(error)


def test_a_failing_rule_is_named(monkeypatch):
    from ortmodule.translate.registry import RULES

    def broken(t, x):
        raise KeyError("oops")

    monkeypatch.setitem(RULES, "relu.default", broken)
    words = "its translation failed: KeyError: 'oops'"
    with pytest.raises(Defect, match=words):  # in checked mode a defect of ours is no fallback
        ORTModule(nn.Sequential(nn.ReLU()))(X)
    monkeypatch.setenv("ORTMODULE_CHECK", "0")
    model = ORTModule(nn.Sequential(nn.ReLU()))
    with pytest.warns(UserWarning, match=words):
        torch.testing.assert_close(model(X), X.relu())
    assert [f.module for f in model.explain().fallbacks] == ["0"]


def test_branch_on_data():
    def body(m, x):
        if x.sum() > 0:
            return m.linear(x)
        return x

    error = refused(Linear(body), X)
    assert "torch.export" in str(error) and error.file == __file__
    lines = Path(__file__).read_text().splitlines()
    assert "if x.sum() > 0" in lines[error.line - 1]


def test_a_failing_capture_is_quiet(capfd):
    refused(Function(lambda x: x + 1 if x.sum() > 0 else x), X)
    out, err = capfd.readouterr()
    assert out == "" and err == ""


def test_branch_on_a_size_that_depends_on_data():
    def body(x):
        kept = x[x > 0]
        return kept.sum() if len(kept) > 2 else x.sum()

    assert "data-dependent" in str(refused(Function(body), X))


def test_in_place_ops_that_have_no_functional_form():
    def body(x):
        y, z = x * 1, x * 2
        torch._foreach_add_([y, z], 1.0)
        return y + z

    assert "expected one tensor, the first" in str(refused(Function(body), X))


def test_draws_from_python_and_numpy():
    assert "calls random.random" in str(refused(Function(lambda x: x * random.random()), X))
    draw = random.Random(0).random
    assert "draw" in str(refused(Function(lambda x: x * draw()), X))
    assert "numpy's global generator" in str(
        refused(Function(lambda x: x * float(np.random.rand())), X)
    )

    def seeds(x):
        torch.manual_seed(1)
        return x + 1

    torch.manual_seed(0)
    torch.rand(3)
    assert "torch.manual_seed" in str(refused(Function(seeds), X))


def test_parameters_written_in_place():
    def body(m, x):
        m.linear.weight.mul_(m.linear.bias)
        return m.linear(x)

    m = Linear(body)
    m.linear.weight.requires_grad_(False)

    assert "changes the autograd history of linear.weight" in str(refused(m, X))


def test_input_that_requires_grad_written_in_place():
    x = X.clone().requires_grad_() * 1

    def body(x):
        x.add_(1)
        return x * 2

    assert "changes the autograd history of input 0" in str(refused(Function(body), x))


def test_overlapping_memory_written_in_place():
    x = X.clone()
    error = refused(Function(lambda a, b: a.add_(1) + b), x, x[:])
    assert "shares memory with input:arguments[0][1]" in str(error)
    check(Function(lambda a, b: a + b), x, x[1:3].t()[:, :1].expand(3, 3)[:1])


def test_arguments_changed():
    def body(x, cache):
        cache["x"] = x
        return x + 1

    cache = {"z": 3}
    found = captured(Function(body), X, cache=cache)
    assert cache == {"z": 3}
    tensors, containers = [X], describe((X,), {"cache": cache}).containers
    result = found.result(run(found, tensors), tensors, found.bind(tensors), containers)
    assert torch.equal(result, X + 1)
    assert cache.keys() == {"z", "x"} and cache["x"] is X


def test_unknown_arguments_and_results():
    with pytest.raises(NotCapturable, match=r"arguments\[0\]\[1\] has type builtins.object"):
        captured(Function(lambda x, y: x), X, object())
    assert "the result has type builtins.object" in str(refused(Function(lambda x: object()), X))


def test_sparse_embedding():
    module = nn.Embedding(5, 3, sparse=True)
    assert "sparse gradients" in str(refused(module, torch.tensor([1])))
    module = nn.Embedding(5, 3, max_norm=1.0)
    error = refused(module, torch.tensor([1]))
    assert "max_norm" in str(error) or "parameter" in str(error)


def test_packed_sequences():
    def body(m, x):
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([3, 2]), batch_first=True)
        return m.rnn(packed)[1]

    module = Linear(body)
    module.rnn = nn.GRU(3, 3, batch_first=True)
    assert refused(module, torch.randn(2, 3, 3))


def test_the_key_holds_constants():
    module = Linear(lambda m, x, k: m.linear(x) * k)
    assert captured(module, X, 2).key == captured(module, X, 2).key
    assert captured(module, X, 2).key != captured(module, X, 2.0).key


def test_grad_mode_is_in_the_key():
    module = Linear()
    with torch.no_grad():
        without = captured(module, X)
    assert without.key != captured(module, X).key
    assert [o.requires_grad for o in without.outputs] == [False]
    with torch.inference_mode():
        inference = captured(module, X)
    assert inference.key != without.key
