"""Transforms and modes around a call, and wrappers in wrappers: eager's results, and a report."""

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from pairs import Pair, asks, close, mlp, options
from torch import nn
from torch._dynamo import compiled_autograd
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from ortmodule import ORTModule

pytestmark = pytest.mark.filterwarnings("ignore")
X = torch.linspace(-1, 1, 15).view(5, 3)
EYE = torch.eye(10).view(10, 5, 2)


class Doubling(TorchDispatchMode):
    def __torch_dispatch__(self, function, _types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return result * 2 if "tanh" in str(function) else result


class DoublingFunction(TorchFunctionMode):
    def __torch_function__(self, function, _types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return result * 2 if function is torch.tanh else result


def trained(m, x=X):
    m(x).square().sum().backward()
    return m[0].weight.grad


def under(mode):
    def act(m):
        m(X)
        with mode():
            return m(X)

    return act


def trained_under(mode):
    def act(m):
        with mode():
            return trained(m)

    return act


def functional_call(m):
    doubled = {name: p * 2 for name, p in m.named_parameters()}
    return torch.func.functional_call(m, doubled, (X,))


def functional_gradient(m):
    values = {name: p.detach() for name, p in m.named_parameters()}

    def loss(parameters):
        return torch.func.functional_call(m, parameters, (X,)).square().sum()

    return torch.func.grad(loss)(values)["0.weight"]


def dual(m):
    m(X)
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(m(forward_ad.make_dual(X, X + 1))).tangent


def doubled_while_packed():
    return torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t)


def gradients_in_inference(m):
    with torch.inference_mode(), torch.enable_grad():
        y = m(X)
    return y.clone() + y.requires_grad


REPORTED = {
    "vmap": (lambda m: torch.vmap(m)(X), "torch.func"),
    "func_grad": (lambda m: torch.func.grad(lambda x: m(x).sum())(X), "torch.func"),
    "jvp": (lambda m: torch.func.jvp(m, (X,), (X,))[1], "torch.func"),
    "jacrev": (lambda m: torch.func.jacrev(m)(X), "torch.func"),
    "functional_call": (functional_call, "expected a Parameter"),
    "functional_gradient": (functional_gradient, "torch.func"),
    "dual": (dual, "forward-mode"),
    "dispatch_mode": (under(Doubling), "TorchDispatchMode"),
    "function_mode": (under(DoublingFunction), "TorchFunctionMode is active (DoublingFunction)"),
    "packed": (trained_under(doubled_while_packed), "hooks on saved tensors"),
    "anomaly": (trained_under(torch.autograd.detect_anomaly), "anomaly"),
    "gradients_in_inference": (gradients_in_inference, "gradients are enabled in inference mode"),
    "compiled_autograd": (
        trained_under(lambda: compiled_autograd._enable(lambda graph: graph)), "compiled autograd",
    ),
    "make_fx": (lambda m: make_fx(m)(X)(X), "TorchDispatchMode"),
    "fx": (lambda m: torch.fx.symbolic_trace(nn.Sequential(m, nn.ReLU()))(X), "torch.fx"),
    "jit_trace": (lambda m: torch.jit.trace(m, X)(X), "torch.jit.trace"),
    "jit_script": (lambda m: torch.jit.script(m)(X), "torch.jit.script"),
    "export": (lambda m: torch.export.export(m, (X,)).module()(X), "TorchDispatchMode"),
    "export_within": (
        lambda m: torch.export.export(nn.Sequential(m, nn.ReLU()), (X,)).module()(X),
        "TorchDispatchMode",
    ),
    "compile": (lambda m: torch.compile(m, backend="eager", fullgraph=True)(X), "Dynamo"),
}  # fmt: skip


@pytest.mark.parametrize("name", REPORTED)
def test_the_plain_module_runs(name):
    act, reason = REPORTED[name]
    torch._dynamo.reset()
    pair = Pair(mlp())
    theirs, ours = act(pair.eager), act(pair.ours)
    assert type(ours) is type(theirs)
    close(ours, theirs, name)
    pair.fell_back(reason)
    pair.eager.zero_grad(), pair.ours.zero_grad()
    pair.step(X)  # a later call is as any other
    assert pair.report.captures > 0 and len(pair.report.fallbacks) == 1


def batched(m):
    x = X.clone().requires_grad_()
    return torch.autograd.grad(m(x), [x, m[0].weight], EYE, is_grads_batched=True)


def mapped(m):
    x = X.clone().requires_grad_()
    y = m(x)
    return torch.vmap(lambda v: torch.autograd.grad(y, x, v, retain_graph=True))(EYE)


def jacobian(m):
    return torch.autograd.functional.jacobian(m, X, vectorize=True)


def checkpointed(reentrant):
    def act(m):
        x = X.clone().requires_grad_()
        for _ in range(2):
            checkpoint(m, x, use_reentrant=reentrant).square().sum().backward()
        return x.grad, m[0].weight.grad

    return act


def on_default_device(m):
    torch.set_default_device("cpu")
    try:
        return trained(m)
    finally:
        torch.set_default_device(None)


CAPTURED = {
    "batched": batched, "mapped": mapped, "jacobian": jacobian,
    "checkpoint": checkpointed(False), "checkpoint_reentrant": checkpointed(True),
    "save_on_cpu": trained_under(torch.autograd.graph.save_on_cpu),
    "default_device": on_default_device,
}  # fmt: skip


@pytest.mark.parametrize("name", CAPTURED)
def test_still_in_the_engine(name):
    pair = Pair(mlp())
    for _ in range(2):
        close(CAPTURED[name](pair.ours), CAPTURED[name](pair.eager), name)
    pair.through_engine()


def test_batched_gradients_with_a_mask_and_an_operator_of_torch():
    """Dropout keeps its mask in each slice; an aten node's history serves all of them."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.LogSigmoid(), nn.Linear(8, 2))
    ours = ORTModule(net, options())
    x = X.clone().requires_grad_()
    y = ours(x)
    each = [torch.autograd.grad(y, x, v, retain_graph=True)[0] for v in EYE]
    close(torch.autograd.grad(y, x, EYE, is_grads_batched=True)[0], torch.stack(each), "slices")
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()


def test_wrappers_in_wrappers_work_as_one():
    pair = Pair(mlp())
    twice = ORTModule(ORTModule(pair.twin, options()), options())
    assert twice.module is pair.twin
    pair.ours = twice
    pair.step(X)
    pair.through_engine(captures=1)

    inner = ORTModule(mlp(), options())
    pair = Pair(nn.Sequential(nn.Linear(3, 3), mlp(), nn.ReLU()))
    inner = ORTModule(pair.twin[1], options())
    pair.twin[1] = inner
    pair.step(X)
    pair.step(X)
    pair.through_engine(captures=1)
    assert inner.explain().captures == 0 and not inner.explain().fallbacks
    for module in (pair.twin[1].module, pair.eager[1]):
        module[0].register_forward_hook(asks)
    pair.step(X)
    pair.fell_back("data-dependent")
