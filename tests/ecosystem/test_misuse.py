"""What a wrapper cannot do, and what goes wrong in a step: eager's error or one clear one, and the
module is usable after."""

import pytest
import torch
from torch import nn
from twins import close, perceptron

from ortmodule import ORTModule

X = torch.linspace(-1, 1, 30).reshape(5, 6)


def usable(ours: nn.Module, *args, captures=None) -> None:
    """A step of it is eager's."""
    args = args or (X,)
    ours.zero_grad()
    result = ours(*args)
    result.square().sum().backward()
    found = [p.grad.clone() for p in ours.parameters()]
    ours.zero_grad()
    with ours.eager():
        expected = ours(*args)
        expected.square().sum().backward()
    close(result, expected, "the output")
    for parameter, grad in zip(ours.parameters(), found, strict=True):
        close(grad, parameter.grad, "a gradient")
    if captures is not None:
        assert ours.explain().captures == captures


def same_error(ours: nn.Module, eager: nn.Module, *args, **kwargs) -> None:
    with pytest.raises(Exception) as theirs:
        eager(*args, **kwargs)
    with pytest.raises(theirs.type) as mine:
        ours(*args, **kwargs)
    assert str(mine.value) == str(theirs.value)


# --- other wrappers --------------------------------------------------------------------------


def test_data_parallel_around():
    """On the CPU it calls what it wraps."""
    ours = ORTModule(perceptron())
    close(nn.DataParallel(ours)(X), perceptron()(X), "the output")
    usable(ours, captures=1)


@pytest.mark.filterwarnings("ignore:DataParallel has its own module")
def test_data_parallel_inside():
    ours = ORTModule(nn.DataParallel(perceptron()))
    close(ours(X), perceptron()(X), "the output")
    assert list(ours.state_dict()) == list(nn.DataParallel(perceptron()).state_dict())
    usable(ours)


@pytest.mark.parametrize("script", [torch.jit.script, lambda m: torch.jit.trace(m, X)])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_script_module(script):
    """Its forward is not Python."""
    with pytest.raises(TypeError, match="wrap the module that it was made of"):
        ORTModule(script(perceptron()))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:ORTModule runs")
def test_a_script_module_inside():
    ours = ORTModule(nn.Sequential(torch.jit.script(perceptron()), nn.Tanh()))
    close(ours(X), perceptron()(X).tanh(), "the output")
    usable(ours)


def test_a_compiled_module():
    """The module in it is what runs: the engine takes the compiler's place."""
    ours = ORTModule(torch.compile(perceptron(), backend="eager"))
    close(ours(X), perceptron()(X), "the output")
    usable(ours, captures=1)
    assert not ours.explain().fallbacks


@pytest.mark.parametrize("how", ["function", "child", "child_in_place"])
def test_compiled_inside(how):
    """A function that forward calls, or a layer: captured as it was written, with all else."""
    net = WithHelper()
    if how == "function":
        net.helper = torch.compile(net.helper, backend="eager")
    elif how == "child":
        net.linear = torch.compile(net.linear, backend="eager")
    else:
        net.linear.compile(backend="eager")
    ours = ORTModule(net)
    usable(ours, captures=1)
    usable(ours, captures=1)
    assert not ours.explain().fallbacks


class WithHelper(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.helper = nn.Linear(6, 2), doubled

    def forward(self, x):
        return torch.tanh(self.helper(self.linear(x)))


def doubled(x):
    return x * 2


def test_compiled_around():
    ours = ORTModule(perceptron())
    compiled = torch.compile(ours, backend="eager")
    with pytest.warns(UserWarning, match="Dynamo traces the module"):
        close(compiled(X), perceptron()(X), "the output")
    usable(ours)


def test_compiled_in_place():
    ours = ORTModule(perceptron())
    ours.compile(backend="eager")
    close(ours(X), perceptron()(X), "the output")
    usable(ours)


# --- arguments --------------------------------------------------------------------------------


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 2)

    def forward(self, x, scale, *, shift):
        return self.linear(x) * scale + shift


@pytest.mark.parametrize("first", [True, False], ids=["wrong_first", "right_first"])
@pytest.mark.parametrize(
    "args, kwargs",
    [((X,), {}), ((X, 2.0), {}), ((X, 2.0, 3.0), {"shift": 1}), ((X, 2.0), {"shift": 1, "more": 2}),
     ((X, 2.0), {"shift": 1, "scale": 2}), ((), {})],
)  # fmt: skip
def test_missing_and_extra_arguments(args, kwargs, first):
    net = Two()
    ours = ORTModule(net)
    if not first:
        close(ours(X, 2.0, shift=1), net(X, 2.0, shift=1), "the output")
    same_error(ours, net, *args, **kwargs)
    close(ours(X, 2.0, shift=1), net(X, 2.0, shift=1), "the output")
    assert ours.explain().captures == 1 and not ours.explain().fallbacks


def test_a_module_on_the_meta_device():
    """Without data nothing can run: eager's answer for data and for tensors of meta."""
    with torch.device("meta"):
        net = perceptron()
    ours = ORTModule(net)
    same_error(ours, net, X)
    assert ours(X.to("meta")).device.type == "meta"
    net.to_empty(device="cpu")
    net.load_state_dict(perceptron().state_dict())
    close(ours(X), perceptron()(X), "the output")
    usable(ours, captures=1)


# --- what goes wrong in a step -----------------------------------------------------------------


class Squares(nn.Module):
    """Returns of n rows a matrix of n x n, which a batch can be too large for."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 1)

    def forward(self, x):
        rows = self.linear(x)
        return rows - rows.T


@pytest.mark.parametrize("first", [True, False], ids=["at_first", "later"])
def test_out_of_memory(first):
    net = Squares()
    ours = ORTModule(net)
    if not first:
        usable(ours, captures=1)
    many = torch.zeros(1, 6).expand(4_000_000, 6)  # 64 TB of differences
    with pytest.raises(RuntimeError, match="memory|allocate"):
        net(many)
    with pytest.raises(RuntimeError, match="memory|allocate"):
        ours(many)
    usable(ours, captures=1)
    assert not ours.explain().fallbacks


class Wrong(Exception):
    """The user's own."""


class Raising(torch.autograd.Function):
    """Raises where `where` says, as long as `on`."""

    where, on = "forward", False

    @staticmethod
    def forward(ctx, x):
        if Raising.on and Raising.where == "forward":
            raise Wrong("in forward")
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        if Raising.on and Raising.where == "backward":
            raise Wrong("in backward")
        return grad * 2


class WithFunction(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.second(Raising.apply(torch.tanh(self.first(x))))


@pytest.fixture
def raising():
    def switch(where):
        Raising.where, Raising.on = where, True

    yield switch
    Raising.on = False


@pytest.mark.parametrize("first", [True, False], ids=["at_first", "later"])
@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.filterwarnings("ignore:ORTModule runs")
def test_an_autograd_function_that_raises(raising, where, first):
    ours = ORTModule(WithFunction())
    if not first:
        usable(ours)
    raising(where)
    with pytest.raises(Wrong, match=f"^in {where}$"):
        ours(X).square().sum().backward()
    Raising.on = False
    usable(ours)


HOOKS = {
    "forward": lambda layer, hook: layer.register_forward_hook(hook),
    "forward_pre": lambda layer, hook: layer.register_forward_pre_hook(hook),
    "backward": lambda layer, hook: layer.register_full_backward_hook(hook),
    "backward_pre": lambda layer, hook: layer.register_full_backward_pre_hook(hook),
    "parameter": lambda layer, hook: layer.weight.register_hook(hook),
    "accumulated": lambda layer, hook: layer.weight.register_post_accumulate_grad_hook(hook),
}


@pytest.mark.parametrize("where", ["own", "child"])
@pytest.mark.parametrize("first", [True, False], ids=["at_first", "later"])
@pytest.mark.parametrize("name", HOOKS)
@pytest.mark.filterwarnings("ignore:ORTModule runs", "ignore:Full backward hook")
def test_a_hook_that_raises(name, first, where):
    """It is the user's exception; with the hook gone the module goes on."""
    net = perceptron()
    ours = ORTModule(net)
    if not first:
        usable(ours)

    def hook(*_):
        raise Wrong("in a hook")

    layer = net[0] if where == "child" or name in ("parameter", "accumulated") else ours
    handle = HOOKS[name](layer, hook)
    for _ in range(2):
        with pytest.raises(Wrong, match="^in a hook$"):
            ours(X.clone().requires_grad_()).square().sum().backward()
    handle.remove()
    usable(ours)


def test_forward_that_raises():
    class Choosy(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.strict = nn.Linear(6, 2), True

        def forward(self, x):
            if self.strict:
                raise Wrong("as it was told")
            return self.linear(x)

    net = Choosy()
    ours = ORTModule(net)
    same_error(ours, net, X)
    net.strict = False
    usable(ours, captures=1)
    net.strict = True
    same_error(ours, net, X)
    net.strict = False
    usable(ours, captures=1)
    assert not ours.explain().fallbacks
