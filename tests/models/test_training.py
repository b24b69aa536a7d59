"""Whole training steps of tiny models against eager: outputs, gradients, 50 losses, dropout."""

import copy
import math

import pytest
import torch
import zoo

from ortmodule import Options, ORTModule

STRICT = Options(fallback="error")
MODELS = zoo.MODELS | {"resnet14": zoo.resnet14}


def build(name, dropout, seed=0, **start):
    torch.manual_seed(seed)
    module, batch = MODELS[name](dropout=dropout, **start)
    return module.train(), batch


def as_float64(batch):
    return {k: v.double() if v.is_floating_point() else v for k, v in batch.items()}


def assert_close_or_as_good(ours, eager, exact, what):
    """Within rtol 1e-4 and atol 1e-5, or no farther from float64 than twice eager is."""
    if torch.allclose(ours, eager, rtol=1e-4, atol=1e-5):
        return
    ours, eager, exact = ours.double(), eager.double(), exact.double()
    mine, theirs = (ours - exact).norm(), (eager - exact).norm()
    bound = 2 * theirs + 1e-7 * exact.norm()
    assert mine <= bound, f"{what}: off by {mine:.3e}, eager by {theirs:.3e}, allowed {bound:.3e}"


def step(module, batch):
    result = module(**batch)
    zoo.loss_of(result).backward()
    return result


# A rounding that turns one of a deep network's ReLUs or maxima tells nothing of the rules: such a
# network may take another start, of these many.
STARTS = {"resnet50": 3}


@pytest.mark.parametrize("name", zoo.MODELS)
def test_one_step_equals_eager(name):
    for start in range(STARTS.get(name, 1)):
        try:
            return one_step_equals_eager(name, start)
        except AssertionError as error:
            apart = error
    raise apart


def one_step_equals_eager(name, seed):
    eager, batch = build(name, 0.0, seed)
    exact = copy.deepcopy(eager).double()
    ours = ORTModule(copy.deepcopy(eager), STRICT)
    result, expected = step(ours, batch), step(eager, batch)
    reference = step(exact, as_float64(batch))
    assert type(result) is type(expected)
    assert_close_or_as_good(
        zoo.loss_of(result), zoo.loss_of(expected), zoo.loss_of(reference), "the loss"
    )
    if hasattr(expected, "logits"):
        assert_close_or_as_good(result.logits, expected.logits, reference.logits, "the logits")
    for (key, mine), (_, theirs), (_, double) in zip(
        ours.named_parameters(), eager.named_parameters(), exact.named_parameters(), strict=True
    ):
        assert (mine.grad is None) == (theirs.grad is None), key
        if theirs.grad is not None:
            assert_close_or_as_good(mine.grad, theirs.grad, double.grad, f"the gradient of {key}")
    for (key, mine), (_, theirs) in zip(ours.named_buffers(), eager.named_buffers(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5, msg=key)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama_lora", "vit", "mlp"])
def test_nothing_runs_on_aten(name):
    module, batch = build(name, 0.1)
    ours = ORTModule(module, STRICT)
    step(ours, batch)
    report = ours.explain()
    assert report.captures == 1 and not report.fallbacks
    assert "aten" not in report.providers and report.providers["cpu"] > 0


def train(module, batch, steps=50):
    optimizer = torch.optim.AdamW(
        [p for p in module.parameters() if p.requires_grad], lr=1e-4, fused=True
    )
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = zoo.loss_of(module(**batch))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


# At 64x64 and batch 4 ResNet-50's plain start is chaotic: rounding of 7e-5 in the last features,
# ours and eager's alike (test_resnet_rounds_no_worse_than_eager), turns the sign of one to three
# values before a ReLU, each a whole percent of the gradient. Eager misses this bar against itself:
# in 3 of 30 steps with one thread for two, in 6 without oneDNN, by up to 31%. Where each block
# starts as the identity, as torchvision offers it and Goyal et al. (2017, section 5.1) train, the
# losses agree.
START = dict.fromkeys(("resnet50", "resnet14"), {"zero_init_residual": True})
LONG = {"resnet50": pytest.mark.long}  # twenty seconds


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=LONG.get(name, ())) for name in MODELS])
def test_fifty_steps_follow_eager(name):
    eager, batch = build(name, 0.0, **START.get(name, {}))
    exact = copy.deepcopy(eager).double()
    ours = ORTModule(copy.deepcopy(eager), STRICT)
    mine, theirs = train(ours, batch), train(eager, batch)
    if all(math.isclose(a, b, rel_tol=1e-3) for a, b in zip(mine, theirs, strict=True)):
        return
    reference = train(exact, as_float64(batch))
    for i, (a, b, c) in enumerate(zip(mine, theirs, reference, strict=True)):
        near = math.isclose(a, b, rel_tol=1e-3) or abs(a - c) <= 2 * abs(b - c)
        assert near, f"step {i}: ours {a}, eager {b}, float64 {c}"


class BlockOutputs(torch.nn.Module):
    """What each block of a torchvision ResNet gives."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        net = self.net
        outputs = [net.maxpool(net.relu(net.bn1(net.conv1(x))))]
        for layer in (net.layer1, net.layer2, net.layer3, net.layer4):
            for block in layer:
                outputs.append(block(outputs[-1]))
        return outputs


def test_resnet_rounds_no_worse_than_eager():
    """From the plain start, the distance to float64 after each of the 17 blocks: 0.99 to 1.05 of
    eager's where this was written."""
    classifier, batch = build("resnet50", 0.0)
    eager = BlockOutputs(classifier.net)
    exact = copy.deepcopy(eager).double()
    ours = ORTModule(copy.deepcopy(eager), STRICT)
    with torch.no_grad():
        results = ours(batch["x"]), eager(batch["x"]), exact(batch["x"].double())
    for i, (a, b, c) in enumerate(zip(*results, strict=True)):
        mine, theirs = (a.double() - c).norm(), (b.double() - c).norm()
        assert mine <= 1.25 * theirs, f"block {i}: off by {mine:.3e}, eager by {theirs:.3e}"


def losses_of(seed, wrap, name, steps=3):
    module, batch = build(name, 0.3, seed=1)
    module = wrap(module)
    torch.manual_seed(seed)
    return train(module, batch, steps)


@pytest.mark.parametrize("name", ["mlp", "bert"])
def test_same_seed_same_run(name):
    module, batch = build(name, 0.3, seed=1)
    start = copy.deepcopy(module.state_dict())
    kept = ORTModule(module, STRICT)
    runs = []
    for _ in range(2):  # the second from the kept capture
        kept.load_state_dict(start)
        torch.manual_seed(7)
        runs.append(train(kept, batch, 3))
    runs.append(losses_of(7, lambda m: ORTModule(m, STRICT), name))
    assert runs[0] == runs[1] == runs[2]
    assert runs[0] != losses_of(8, lambda m: ORTModule(m, STRICT), name)


@pytest.mark.slow
def test_dropout_trains_as_eager_does():
    """Over 32 seeds the mean loss after 20 steps is within three standard errors of eager's."""
    module, batch = build("mlp", 0.3, seed=1)
    start = copy.deepcopy(module.state_dict())

    def last_loss(model, seed):
        module.load_state_dict(start)
        torch.manual_seed(seed)
        return train(model, batch, 20)[-1]

    kept = ORTModule(module, STRICT)
    ours, eager = (torch.tensor([last_loss(m, s) for s in range(32)]) for m in (kept, module))
    error = math.sqrt(ours.var() / 32 + eager.var() / 32)
    assert abs(ours.mean() - eager.mean()) <= 3 * error


def test_keep_rate():
    class Drop(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.dropout(x, 0.3, True)

    x = torch.ones(1000, 400, requires_grad=True)
    y = ORTModule(Drop(), STRICT)(x)
    kept = (y != 0).double().mean().item()
    sigma = math.sqrt(0.3 * 0.7 / x.numel())
    assert abs(kept - 0.7) <= 4 * sigma
    torch.testing.assert_close(y[y != 0], torch.full_like(y[y != 0], 1 / 0.7))
    y.sum().backward()
    torch.testing.assert_close(x.grad, y.detach())
