"""Modules of several dtypes, and a module whose dtype changes between steps, against eager."""

import copy

import pytest
import torch
from near import check_step
from pairs import options
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from ortmodule import ORTModule

X = torch.randn(6, 8)


class Mixed(nn.Module):
    """Halves with a norm in float32 between them, and buffers of other dtypes that it reads."""

    def __init__(self, half):
        super().__init__()
        self.first, self.last = nn.Linear(8, 16).to(half), nn.Linear(16, 4).to(half)
        self.norm = nn.LayerNorm(16)
        self.register_buffer("scale", torch.rand(16, dtype=torch.float64))
        self.register_buffer("order", torch.randperm(16))
        self.register_buffer("mask", torch.rand(16) > 0.3)

    def forward(self, x):
        y = self.first(x)
        z = self.norm(y.to(self.norm.weight.dtype)).to(y.dtype)
        z = (z * self.scale.to(z.dtype))[:, self.order].masked_fill(self.mask, 0.5)
        return self.last(z.relu()) + y[:, :4]


@pytest.mark.parametrize("around", [None, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
def test_norms_in_float32_and_buffers_of_other_dtypes(half, around):
    report = check_step(Mixed(half), X.to(half), dtype=around)
    assert not report.fallbacks and report.captures == 1


class Normed(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.norm = norm

    def forward(self, x):
        return self.norm(x)


NORMS = {
    "layer": (lambda: nn.LayerNorm(8), X),
    "group": (lambda: nn.GroupNorm(2, 8), X),
    "batch": (lambda: nn.BatchNorm1d(8), X),
}


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", NORMS)
def test_a_norm_in_float32_takes_halves(name, half):
    make, x = NORMS[name]
    report = check_step(Normed(make()), x.to(half))
    assert not report.fallbacks


def train(module, model, batches, dtypes):
    """Losses, and gradients' dtypes, of steps before each of which the module changes its dtype."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
    before = [id(p) for p in module.parameters()]
    losses, kinds = [], []
    for (x, y), dtype in zip(batches, dtypes, strict=True):
        model.to(dtype)
        optimizer.zero_grad()
        loss = (model(x.to(dtype)) - y.to(dtype)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        kinds.append([p.grad.dtype for p in module.parameters()])
    assert [id(p) for p in optimizer.param_groups[0]["params"]] == before
    assert [id(p) for p in model.parameters()] == before
    return losses, kinds


def test_to_between_steps():
    torch.manual_seed(0)
    eager = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 4))
    mine = copy.deepcopy(eager)
    dtypes = [torch.float32, torch.bfloat16, torch.float32, torch.float64, torch.float16] * 2
    batches = [(torch.randn(6, 8), torch.randn(6, 4)) for _ in dtypes]
    ours = ORTModule(mine, options(fallback="error"))
    losses, kinds = train(mine, ours, batches, dtypes)
    expected, their_kinds = train(eager, eager, batches, dtypes)
    assert kinds == their_kinds
    torch.testing.assert_close(losses, expected, rtol=2e-2, atol=2e-2)
    assert ours.explain().captures == 4 and not ours.explain().fallbacks  # one a dtype


def llama_with_adapters():
    """A bfloat16 Llama whose adapters peft keeps in float32."""
    from peft import LoraConfig, get_peft_model

    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
    )  # fmt: skip
    torch.manual_seed(0)
    base = LlamaForCausalLM(config).bfloat16()
    lora = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], lora_dropout=0.0)
    model = get_peft_model(base, lora)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter, std=0.1)
    return model


@pytest.mark.parametrize("around", [None, torch.bfloat16])
def test_a_bfloat16_base_with_float32_adapters(around):
    eager = llama_with_adapters()
    exact, mine = copy.deepcopy(eager).float(), copy.deepcopy(eager)
    ours = ORTModule(mine, options(fallback="error"))
    ids = torch.randint(0, 64, (2, 10))
    losses = {}
    for name, module, model in (("eager", eager, eager), ("ours", mine, ours), ("", exact, exact)):
        trained = [p for p in module.parameters() if p.requires_grad]
        optimizer, losses[name] = torch.optim.AdamW(trained, lr=1e-2), []
        for _ in range(8):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=bool(around and name)):
                loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            losses[name].append(loss.item())
    for (key, a), (_, b) in zip(mine.named_parameters(), eager.named_parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None) == ("lora" not in key), key
        if a.grad is not None:
            assert a.grad.dtype == b.grad.dtype == torch.float32, key
    assert (
        distance(losses["ours"], losses[""]) <= 1.5 * distance(losses["eager"], losses[""]) + 1e-3
    )
    assert ours.explain().captures == 1 and not ours.explain().fallbacks


def distance(losses, exact):
    return sum(abs(a - b) for a, b in zip(losses, exact, strict=True)) / len(exact)
