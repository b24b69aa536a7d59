"""Bases kept in few bits: values, training beside them, and what peft does to them."""

import copy

import bitsandbytes
import pytest
import torch
from pairs import options
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from torch import nn

from ortmodule import ORTModule, lora
from ortmodule.quantized import BLOCK, FORMATS, NORMAL_FLOATS, quantize

# How far from the weights a base may be, of a block's largest.
NEAR = {"bf16": 2**-8, "int8": 0.5 / 127, "nf4": (NORMAL_FLOATS[1] - NORMAL_FLOATS[0]) / 2 + 1e-6}


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(16, 64)
        self.q, self.v = nn.Linear(64, 96), nn.Linear(96, 64, bias=False)
        self.head = nn.Linear(64, 5)

    def forward(self, ids):
        return self.head(torch.tanh(self.v(torch.tanh(self.q(self.table(ids))))))


def adapted(**fields):
    torch.manual_seed(0)
    model = get_peft_model(Small(), LoraConfig(r=4, target_modules=["q", "v"], **fields))
    for name, p in model.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(p, std=0.1)
    return model


IDS = torch.arange(12).reshape(3, 4)


def step(model, optimizer=None):
    model.zero_grad()
    y = model(IDS)
    y.square().mean().backward()
    grads = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    if optimizer is not None:
        optimizer.step()
    return [y.detach(), *grads]


def check_equal(ours, theirs, base):
    """bf16: eager rounds a product's result too."""
    near = {"rtol": 3e-2, "atol": 1e-3} if base == "bf16" else {"rtol": 1e-4, "atol": 1e-6}
    torch.testing.assert_close(ours, theirs, **near)


@pytest.mark.parametrize("shape", [(5, 64), (96, 64), (64, 3)])
@pytest.mark.parametrize("base", lora.BASES)
def test_a_weight_is_as_near_as_its_format_allows(base, shape):
    layer = nn.Linear(shape[1], shape[0]).requires_grad_(False)
    before = layer.weight.clone()
    lora.convert(layer, base)
    largest = before.reshape(-1, BLOCK).abs().amax(1, keepdim=True)
    apart = (layer.weight.reshape(-1, BLOCK) - before.reshape(-1, BLOCK)).abs()
    assert (apart <= NEAR[base] * largest).all()
    again = copy.deepcopy(layer)
    again.weight = layer.weight
    assert torch.equal(again.codes, layer.codes)


def test_blocks_of_int8_are_codes_times_scales():
    weight = torch.randn(8, 64)
    codes, scales = quantize(weight, "int8")
    assert torch.equal(scales, weight.abs().amax(1) / 127)
    assert torch.equal(codes.reshape(8, 64), (weight / scales[:, None]).round().to(torch.int8))
    made = FORMATS["int8"].dequantize(codes, scales).reshape(8, 64)
    assert torch.equal(made, codes.reshape(8, 64).float() * scales[:, None])


def test_blocks_of_nf4_take_the_nearest_number():
    """Of zeros too; the first of two is in the upper bits."""
    weight = torch.cat([torch.randn(6, 64), torch.zeros(1, 64)])
    codes, scales = quantize(weight, "nf4")
    table = torch.tensor(NORMAL_FLOATS, dtype=torch.float64)
    assert torch.equal(scales, weight.abs().amax(1))
    shares = weight.double() / scales.where(scales > 0, 1)[:, None].double()
    nearest = (shares[..., None] - table).abs().argmin(-1).reshape(-1)
    assert torch.equal(torch.stack([codes >> 4, codes & 15], 1).reshape(-1).long(), nearest)


@pytest.mark.parametrize("fields", [{}, {"use_rslora": True}, {"use_dora": True}], ids=str)
@pytest.mark.parametrize("base", lora.BASES)
def test_adapters_train_beside_it_as_in_eager(base, fields):
    model = lora.convert(adapted(**fields), base)
    eager = copy.deepcopy(model)
    ours = ORTModule(model, options(fallback="whole"))
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, eager)]
    for _ in range(3):
        check_equal(step(ours, optimizers[0]), step(eager, optimizers[1]), base)
    assert ours.explain().captures == 1


@pytest.mark.parametrize("base", lora.BASES)
def test_merge_unmerge_and_edits_are_noticed(base):
    model = lora.convert(adapted(), base)
    eager = copy.deepcopy(model)
    ours = ORTModule(model, options())
    changes = [
        lambda m: m.merge_adapter(),
        lambda m: m.unmerge_adapter(),
        lambda m: setattr(m.base_model.model.q.base_layer.weight, "data", torch.ones(96, 64)),
        lambda m: m.base_model.model.v.base_layer.weight.mul_(2),
        lambda m: m.base_model.model.v.base_layer.weight.data.zero_(),
        lambda m: m.disable_adapter_layers(),
    ]
    for change in changes:
        for m in (model, eager):
            change(m)
        with torch.no_grad():
            check_equal(ours(IDS), eager(IDS), base)
    assert eager.base_model.model.v.base_layer.weight.abs().max() == 0


@pytest.mark.parametrize("base", lora.BASES)
def test_state_dicts_load_both_ways_and_adapters_are_pefts(base, tmp_path):
    model = lora.convert(adapted(), base)
    plain = adapted()
    plain.load_state_dict(model.state_dict())
    back = lora.convert(adapted(), base)
    back.load_state_dict(plain.state_dict())
    with torch.no_grad():
        assert torch.equal(back(IDS), model(IDS))
    model.save_pretrained(tmp_path)
    torch.manual_seed(0)
    loaded = PeftModel.from_pretrained(Small(), tmp_path)
    ours, theirs = map(get_peft_model_state_dict, (model, loaded))
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)
    merged = model.merge_and_unload()
    with torch.no_grad():
        check_equal(ORTModule(merged, options())(IDS), merged(IDS), base)


def test_only_what_is_frozen_and_no_adapters_is_kept_in_few_bits():
    model = adapted(modules_to_save=["head"])
    model.add_adapter("other", LoraConfig(r=4, target_modules=["q", "v"]))
    lora.convert(model, "nf4")
    formats = {n: m.format for n, m in model.named_modules() if hasattr(m, "format")}
    found = {n.removeprefix("base_model.model."): f for n, f in formats.items()}
    layers = {"q.base_layer": "nf4", "v.base_layer": "nf4", "head.original_module": "nf4"}
    assert found == {"table": "bf16", **layers}


def _packed(compress):
    """A layer of bitsandbytes' with its weight in nf4."""
    layer = bitsandbytes.nn.Linear4bit(
        64, 96, quant_type="nf4", compress_statistics=compress, compute_dtype=torch.float32
    )
    layer.weight = bitsandbytes.nn.Params4bit(
        torch.randn(96, 64), requires_grad=False, quant_type="nf4", compress_statistics=compress
    )
    return layer.to("cpu")


@pytest.mark.parametrize("compress", [False, True])
def test_layers_of_bitsandbytes_keep_their_codes_and_scales(compress):
    layer, x = _packed(compress), torch.randn(3, 64)
    expected, codes = layer(x), layer.weight.data.reshape(-1).clone()
    floats = bitsandbytes.functional.dequantize_4bit(layer.weight.data, layer.weight.quant_state)
    model = lora.convert(nn.Sequential(layer), "nf4")
    assert torch.equal(model[0].codes, codes) and torch.equal(model[0].weight, floats)
    torch.testing.assert_close(ORTModule(model, options())(x), expected, rtol=1e-5, atol=1e-5)


def test_nf4_is_bitsandbytes():
    weight = torch.randn(96, 64) * 0.02
    codes, scales = quantize(weight, "nf4")
    theirs, state = bitsandbytes.functional.quantize_4bit(weight, blocksize=64, quant_type="nf4")
    assert torch.equal(codes, theirs.reshape(-1)) and torch.equal(scales, state.absmax.reshape(-1))
    made = FORMATS["nf4"].dequantize(codes, scales).reshape(96, 64)
    assert torch.equal(made, bitsandbytes.functional.dequantize_4bit(theirs, state))


def test_a_layer_of_bitsandbytes_that_peft_has_wrapped_is_refused():
    model = nn.Sequential()
    model.add_module("q", _packed(False))
    model.is_loaded_in_4bit = True  # as transformers says it
    model = get_peft_model(model, LoraConfig(r=4, target_modules=["q"]))
    with pytest.raises(ValueError, match="model.q is peft's Linear4bit: convert before"):
        lora.convert(model, "nf4")


def test_a_tied_weight_stays_as_it_is():
    model = Small().requires_grad_(False)
    model.other = nn.Linear(64, 16, bias=False)
    model.other.weight = model.table.weight
    lora.convert(model, "int8")
    assert model.other.weight is model.table.weight and model.q.format == "int8"


def test_another_dtype_changes_only_how_a_weight_shows():
    layer = lora.convert(nn.Linear(64, 8).requires_grad_(False), "int8")
    codes, scales = layer.codes.clone(), layer.scales.clone()
    layer.bfloat16()
    assert torch.equal(layer.codes, codes) and torch.equal(layer.scales, scales)
    assert layer.weight.dtype == layer.bias.dtype == torch.bfloat16
    assert layer(torch.ones(2, 64, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_what_is_refused():
    with pytest.raises(ValueError, match="base is 'int4', expected one of bf16, nf4, int8"):
        lora.convert(adapted(), "int4")
    with pytest.raises(ValueError, match="no nn.Linear whose weight is frozen"):
        lora.convert(Small())
    layer = nn.Linear(64, 4).requires_grad_(False)
    layer.weight[0, 0] = torch.inf
    with pytest.raises(ValueError, match="not finite"):
        lora.convert(layer, "nf4")
    with pytest.raises(ValueError, match="expected blocks of 64"):
        quantize(torch.ones(3, 5), "nf4")
    layer = lora.convert(nn.Linear(64, 4).requires_grad_(False), "nf4")
    with pytest.raises(ValueError, match=r"shape \[4, 3\], expected \[4, 64\]"):
        layer.weight = torch.ones(4, 3)
    with pytest.raises(RuntimeError, match=r"weight: weight has shape \[4, 3\]"):
        layer.load_state_dict({"weight": torch.ones(4, 3), "bias": torch.ones(4)})
    with pytest.raises(RuntimeError, match="Missing key"):
        layer.load_state_dict({"bias": torch.ones(4)})
