"""The wrapper is its module to everyone who looks: state, signature, attributes, errors."""

import copy
import functools
import inspect
import pickle
import types
import warnings

import pytest
import torch
from pairs import Pair, asks, close, mlp, options
from torch import nn

from ortmodule import ORTModule
from ortmodule.errors import NotCapturable

X = torch.randn(5, 3)


class Net(nn.Module):
    """A module with an attribute, a buffer, a method and a forward worth inspecting."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(3, 4), nn.BatchNorm1d(4)
        self.scale = 2.0

    def forward(self, x: torch.Tensor, *, shift: float = 0.5) -> torch.Tensor:
        """Scales and shifts."""
        return self.norm(self.linear(x)) * self.scale + shift

    def double(self):
        return "mine"

    def size(self):
        return self.linear.out_features


def test_state_and_parameters_are_the_modules():
    net = Net()
    ours = ORTModule(net, options())
    assert list(ours.state_dict()) == list(net.state_dict())
    for (a, p), (b, q) in zip(ours.named_parameters(), net.named_parameters(), strict=True):
        assert a == b and p is q
    for (a, p), (b, q) in zip(ours.named_buffers(), net.named_buffers(), strict=True):
        assert a == b and p is q
    assert [n for n, _ in ours.named_modules()] == [n for n, _ in net.named_modules()]
    assert dict(ours.named_children())["linear"] is net.linear
    assert ours.get_parameter("linear.weight") is net.linear.weight


def test_load_state_dict_both_ways():
    ours, net = ORTModule(Net(), options()), Net()
    assert str(ours.load_state_dict(net.state_dict())) == "<All keys matched successfully>"
    assert str(net.load_state_dict(ours.state_dict())) == "<All keys matched successfully>"
    close(ours.linear.weight, net.linear.weight, "the weight")
    missing = ours.load_state_dict({}, strict=False).missing_keys
    assert missing == net.load_state_dict({}, strict=False).missing_keys != []


def test_state_dict_inside_another_module():
    net = Net()
    outer = nn.Sequential(ORTModule(net, options()))
    assert list(outer.state_dict()) == [f"0.{key}" for key in net.state_dict()]
    other = nn.Sequential(Net())
    outer.load_state_dict(other.state_dict())
    close(net.linear.weight, other[0].linear.weight, "the weight")


def test_signature_and_documentation():
    net = Net()
    ours = ORTModule(net, options())
    assert inspect.signature(ours.forward) == inspect.signature(net.forward)
    assert ours.forward.__doc__ == "Scales and shifts."


def test_train_and_eval_reach_the_module():
    net = Net()
    ours = ORTModule(net, options())
    assert ours.eval() is ours and not net.training and not net.norm.training
    assert not ours.training
    ours.train()
    assert net.training and ours.training and net.norm.training


def test_attributes_show_through_both_ways():
    net = Net()
    ours = ORTModule(net, options())
    assert ours.scale == 2.0 and ours.size() == 4 and ours.module is net
    ours.scale = 3.0
    assert net.scale == 3.0
    ours.linear = nn.Linear(3, 4, bias=False)
    assert net.linear.bias is None and "linear.bias" not in ours.state_dict()
    ours.register_buffer("extra", torch.ones(1))
    assert net.extra is ours.extra
    del ours.scale
    assert not hasattr(net, "scale")
    with pytest.raises(AttributeError, match="nothing_here"):
        ours.nothing_here  # noqa: B018


class Flagged(Net):
    """What its class says is hidden by what an instance says."""

    factor = 1.0

    def forward(self, x):
        return super().forward(x) * self.factor

    def factored(self):
        return self.factor, self.double()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("where", ["wrapper", "module"])
def test_an_attribute_hides_the_classs(when, where):
    """Set on the module or through the wrapper, ahead of the wrapper or later, also methods."""
    net = Flagged()
    ours = None if when == "before" else ORTModule(net, options())
    target = ours if where == "wrapper" and ours is not None else net
    target.factor, target.double = 3.0, lambda: "another"
    target.zero_grad = lambda: "kept"
    ours = ours or ORTModule(net, options())
    assert ours.factor == net.factor == 3.0
    assert ours.factored() == net.factored() == (3.0, "another")
    assert ours.zero_grad() == "kept"
    del net.factor, net.double, ours.zero_grad
    assert ours.factored() == (1.0, "mine") and ours.zero_grad() is None
    Flagged.factor = 2.0
    try:
        assert ours.factor == type(ours).factor == 2.0
    finally:
        Flagged.factor = 1.0
    assert type(ours).factored is Flagged.factored


def test_setattr_through_the_wrapper_changes_the_result():
    pair = Pair(Net().eval())
    pair.step(X)
    pair.eager.scale = pair.ours.scale = -1.0
    pair.step(X)
    pair.through_engine(captures=2)


@pytest.mark.parametrize("name", ["explain", "export_onnx", "module"])
def test_name_collision_warns_once(name):
    net = Net()
    setattr(net, name, nn.Identity())
    with pytest.warns(UserWarning, match=name) as found:
        ours = ORTModule(net, options())
    assert len(found) == 1
    assert getattr(ours.module, name) is getattr(net, name)


def test_no_warning_without_collision():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ORTModule(Net(), options())


def test_no_module_is_a_type_error():
    with pytest.raises(TypeError, match="nn.Module, got int"):
        ORTModule(3)


class Embedded(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(4, 3)

    def forward(self, ids):
        return self.table(ids)


WRONG = {
    "features": (mlp, X, torch.randn(5, 7)),
    "rank": (mlp, X, torch.tensor(1.0)),
    "double": (mlp, X, X.double()),
    "integer": (mlp, X, torch.ones(5, 3, dtype=torch.long)),
    "index": (Embedded, torch.tensor([0, 3]), torch.tensor([0, 4])),
    "negative_index": (Embedded, torch.tensor([0, 3]), torch.tensor([0, -1])),
    "float_index": (Embedded, torch.tensor([0, 3]), torch.tensor([0.0, 1.0])),
    "no_tensor": (mlp, X, "text"),
}


@pytest.mark.parametrize("fallback", ["report", "error"])
@pytest.mark.parametrize("first", [True, False], ids=["wrong_first", "right_first"])
@pytest.mark.parametrize("what", WRONG)
def test_wrong_inputs_raise_eagers_exception(what, first, fallback):
    """No fallback is recorded, and right calls go through the engine before and after."""
    make, right, wrong = WRONG[what]
    pair = Pair(make(), fallback=fallback)
    if not first:
        pair.step(right)
    with pytest.raises(Exception) as theirs:
        pair.eager(wrong)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(theirs.type) as ours:
            pair.ours(wrong)
    assert str(ours.value) == str(theirs.value)
    assert not pair.report.fallbacks
    pair.step(right)
    pair.through_engine(captures=1)


def test_wrong_number_of_arguments():
    pair = Pair(mlp())
    with pytest.raises(TypeError, match="positional argument"):
        pair.ours(X, X)
    with pytest.raises(TypeError, match="unexpected keyword"):
        pair.ours(X, nonsense=1)
    pair.step(X)
    pair.through_engine()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_moved_to_another_dtype_is_a_capture_of_its_own(dtype):
    ours = ORTModule(mlp(), options())
    ours(X)
    ours.to(dtype)
    y = ours(X.to(dtype))
    y.sum().backward()
    with ours.eager():
        torch.testing.assert_close(y, ours(X.to(dtype)), rtol=2e-2, atol=2e-2)
    assert y.dtype == dtype and all(p.grad.dtype == dtype for p in ours.parameters())
    ours.float()
    assert ours(X).dtype == torch.float32
    assert ours.explain().captures == 2 and not ours.explain().fallbacks


@pytest.mark.parametrize(
    "twin_of", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"]
)
def test_copies_are_modules_of_their_own(twin_of):
    ours = ORTModule(mlp(), options(segment_bytes=7))
    ours(X).sum().backward()
    twin = twin_of(ours)
    assert isinstance(twin, ORTModule) and twin.module is not ours.module
    close(twin(X), ours(X), "the copy's output")
    twin.module[0].weight.data.zero_()
    assert ours.module[0].weight.abs().sum() > 0


def test_fallback_error_raises_not_capturable():
    net = mlp()
    net[0].register_forward_hook(asks)
    ours = ORTModule(net, options(fallback="error"))
    with pytest.raises(NotCapturable, match="data-dependent"):
        ours(X)
    assert not ours.explain().fallbacks


def test_fallback_error_leaves_no_trace():
    """Whether eager would raise is tried out; what that moved is put back."""

    class Counting(Net):
        def forward(self, x):
            self.scale += 1
            x.add_(torch.rand(()))
            return super().forward(x) if x.sum() < 1e9 else x

    net = Counting()
    ours = ORTModule(net, options(fallback="error"))
    x, state = X.clone(), copy.deepcopy(net.state_dict())
    torch.manual_seed(3)
    with pytest.raises(NotCapturable, match="data-dependent"):
        ours(x)
    assert net.scale == 2.0 and torch.equal(x, X)
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
    drawn = torch.rand(())
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(()))


def test_containers_stay_containers():
    ours = ORTModule(mlp(), options())
    assert len(ours) == 3 and ours[0] is ours.module[0] and list(ours)[1] is ours.module[1]
    assert ours[1] in ours and len(ours[:2]) == 2
    ours[1] = nn.ReLU()
    assert isinstance(ours.module[1], nn.ReLU)
    del ours[1]
    assert len(ours.module) == 2
    same = ours
    ours += nn.Sequential(nn.Tanh())
    assert ours is same and len(ours) == 3
    named = ORTModule(nn.ModuleDict({"a": nn.Linear(2, 2)}), options())
    assert "a" in named and list(named) == ["a"] and named["a"] is named.module["a"]
    plain = ORTModule(nn.Linear(2, 2), options())
    assert plain and not hasattr(plain, "__len__")
    assert all(len(twin(ours)) == 3 for twin in (copy.deepcopy, copy.copy))


def test_fallback_report_warns_once_with_file_and_line():
    net = mlp()
    net[0].register_forward_hook(asks)
    ours = ORTModule(net, options())
    with pytest.warns(UserWarning, match="in parts") as found:
        ours(X)
        ours(X)
    assert len(found) == 1
    (fallback,) = ours.explain().not_whole
    assert fallback.file.endswith("pairs.py") and fallback.line > 0


def test_a_changed_module_is_tried_again():
    net = mlp()
    hook = net[0].register_forward_hook(asks)
    ours = ORTModule(net, options())
    with pytest.warns(UserWarning):
        ours(X)
    hook.remove()
    ours(X)
    assert ours.explain().captures == 1


def test_a_forward_around_the_wrappers_own_stays_on_the_wrapper():
    """As accelerate replaces it, to enter autocast and to cast what comes out."""
    net = Net()
    ours = ORTModule(net, options(fallback="error"))
    inner = ours.forward.__func__

    @functools.wraps(inner)
    def around(self, *args, **kwargs):
        with torch.autocast("cpu", torch.bfloat16):
            return inner(self, *args, **kwargs).float()

    ours.kept = ours.forward
    ours.forward = types.MethodType(around, ours)
    with torch.autocast("cpu", torch.bfloat16):
        expected = net(X).float()
    torch.testing.assert_close(ours(X), expected, rtol=1e-2, atol=1e-2)
    assert "forward" not in vars(net) and "kept" in vars(ours)
    assert ours.explain().captures == 1 and not ours.explain().fallbacks
    del ours.forward
    close(ours(X), net(X), "the output")


def test_another_forward_is_the_modules():
    """Bound to the wrapper or not, it is what the engine captures."""
    net = Net()
    ours = ORTModule(net, options(fallback="error"))
    ours.forward = types.MethodType(lambda self, x: self.linear(x) * 3, ours)
    close(ours(X), net.linear(X) * 3, "the output")
    assert ours.forward.__self__ is not net and net.forward.__self__ is net
    assert ours.explain().captures == 1 and not ours.explain().fallbacks
