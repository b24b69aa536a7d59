"""Bases kept in few bits: values, training beside them, and what peft does to them."""

import copy

import bitsandbytes
import pytest
import torch
from pairs import options
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from torch import nn
from torch.nn.utils import prune

from ortmodule import ORTModule, lora
from ortmodule.lowbit.quantized import BLOCK, FORMATS, NORMAL_FLOATS, quantize

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


def _packed(compress, dtype=torch.float32, columns=64):
    """A layer of bitsandbytes' with its weight in nf4."""
    layer = bitsandbytes.nn.Linear4bit(
        columns, 96, quant_type="nf4", compress_statistics=compress, compute_dtype=torch.float32
    )
    layer.weight = bitsandbytes.nn.Params4bit(
        torch.randn(96, columns).to(dtype),
        requires_grad=False,
        quant_type="nf4",
        compress_statistics=compress,
    )
    return layer.to("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("compress", [False, True])
def test_layers_of_bitsandbytes_keep_their_codes_and_scales(compress, dtype):
    """Scales that are packed themselves are no numbers of a half."""
    layer, x = _packed(compress, dtype), torch.randn(3, 64)
    expected, codes = layer(x), layer.weight.data.reshape(-1).clone()
    floats = bitsandbytes.functional.dequantize_4bit(layer.weight.data, layer.weight.quant_state)
    model = lora.convert(nn.Sequential(layer), "nf4")
    assert torch.equal(model[0].codes, codes) and torch.equal(model[0].weight, floats)
    near = 1e-5 if dtype == torch.float32 else 2e-2
    ours = ORTModule(model, options(fallback="whole"))
    torch.testing.assert_close(ours(x), expected, rtol=near, atol=near)


def test_a_layer_of_bitsandbytes_without_whole_blocks_stays_as_it_is():
    model = nn.Sequential(_packed(False, columns=5), nn.Linear(64, 4).requires_grad_(False))
    kind = type(model[0])
    lora.convert(model, "nf4")
    assert type(model[0]) is kind and model[1].format == "nf4"


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


WRITES = {
    "out=": lambda w: torch.add(torch.ones(4, 64), 0, out=w),
    "a list": lambda w: torch._foreach_copy_([w], [torch.ones(4, 64)]),
    "rows": lambda w: [w[i].fill_(1) for i in range(4)],
    "another shape": lambda w: w.T.unsqueeze(0).fill_(1),
    "detached": lambda w: w.detach().unsqueeze(0).fill_(1),
    "parts": lambda w: [part.fill_(1) for part in w.data.chunk(2)],
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("base", lora.BASES)
def test_writes_through_lists_and_views_are_noticed(base, inference, name):
    layer = lora.convert(nn.Linear(64, 4).requires_grad_(False), base)
    with torch.inference_mode(inference):
        WRITES[name](layer.weight)
    assert torch.equal(layer.weight, torch.ones(4, 64))


ASKS = {
    "the weight": lambda m: m.q.weight.requires_grad_(True),
    "an attribute": lambda m: setattr(m.q.weight, "requires_grad", True),
    "the layer": lambda m: m.q.requires_grad_(True),
    "the model": lambda m: m.requires_grad_(True),
    "parameters": lambda m: [p.requires_grad_(True) for p in m.parameters()],
    "a copy's": lambda m: copy.deepcopy(m).requires_grad_(True),
}


@pytest.mark.parametrize("name", ASKS)
def test_a_layer_that_is_asked_to_train_is_one_of_floats(name):
    base = "nf4"
    model = lora.convert(Small().requires_grad_(False), base)
    shown, state = model.q.weight.clone(), model.state_dict()
    assert [n for n, _ in model.named_parameters()] == [n for n, _ in Small().named_parameters()]
    ours = ORTModule(model, options())
    ours(IDS)
    found = ASKS[name](model)
    trained = found if name == "a copy's" else model
    assert type(trained.q) is nn.Linear and trained.q.weight.requires_grad
    assert torch.equal(trained.q.weight, shown) and trained.state_dict().keys() == state.keys()
    eager = copy.deepcopy(trained)
    check_equal(step(ORTModule(trained, options())), step(eager), base)
    if name == "a copy's":
        assert model.q.format == base and not model.q.weight.requires_grad
    else:
        assert ours(IDS).requires_grad
    with pytest.raises(RuntimeError, match="a view of a weight that is kept in few bits cannot be"):
        lora.convert(nn.Linear(64, 4).requires_grad_(False), base).weight.T.requires_grad_(True)


@pytest.mark.parametrize("base", lora.BASES)
def test_what_peft_trains_whole_is_one_of_floats(base):
    """Its copy for modules_to_save is made of a layer that was converted before."""
    model = lora.convert(Small().requires_grad_(False), base)
    config = LoraConfig(r=4, target_modules=["q"], modules_to_save=["head", "v"])
    model = get_peft_model(model, config)
    eager = copy.deepcopy(model)
    check_equal(step(ORTModule(model, options())), step(eager), base)
    saved = model.base_model.model.v
    assert saved.modules_to_save.default.weight.grad is not None
    assert saved.original_module.format == base


@pytest.mark.parametrize("base", lora.BASES)
def test_in_inference_mode(base):
    """DoRA reads the weight, a merge writes it; codes that are made within may be written after."""
    model = adapted(use_dora=True)
    with torch.inference_mode():
        lora.convert(model, base)
    eager = copy.deepcopy(model)
    ours = ORTModule(model, options())
    with torch.inference_mode():
        check_equal(ours(IDS), eager(IDS), base)
        for m in (model, eager):
            m.merge_adapter()
        check_equal(ours(IDS), eager(IDS), base)
    with torch.no_grad():
        for m in (model, eager):
            m.unmerge_adapter()
        check_equal(ours(IDS), eager(IDS), base)


def test_in_parts():
    class Cut(Small):
        def forward(self, ids):
            x = self.q(self.table(ids))
            if x.sum().item() > 1e9:
                x = x * 2
            return self.head(torch.tanh(nn.functional.linear(x, self.v.weight)))

    for base in ("bf16", "nf4"):
        model = lora.convert(Cut().requires_grad_(False), base)
        eager = copy.deepcopy(model)
        ours = ORTModule(model, options())
        with torch.no_grad():
            check_equal(ours(IDS), eager(IDS), base)
        assert len(ours.explain().parts) > 1 and not ours.explain().fallbacks


def test_layers_that_make_their_weight_stay_as_they_are():
    made = [nn.utils.spectral_norm(nn.Linear(64, 64)), nn.Linear(64, 64)]
    prune.random_unstructured(made[1], "weight", 0.5)
    plain = nn.Linear(64, 64)
    model = nn.Sequential(*made, plain, plain).requires_grad_(False)
    lora.convert(model, "int8")
    assert [type(m) is nn.Linear for m in model] == [True, True, False, False]


def test_a_conversion_that_is_refused_converts_nothing():
    """It names the layer."""
    wrong = {"nf4": (torch.inf, 1e39), "int8": (torch.nan, 1e39), "bf16": (1e39, 3.4e38)}
    for base, numbers in wrong.items():
        for number in numbers:
            model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)).double()
            model.requires_grad_(False)[1].weight[3, 3] = number
            with pytest.raises(ValueError, match=r"^1.weight: a weight has numbers"):
                lora.convert(model, base)
            assert type(model[0]) is nn.Linear
        with torch.device("meta"):
            model = nn.Sequential(nn.Linear(64, 64)).requires_grad_(False)
        with pytest.raises(ValueError, match="0.weight: a weight is on meta"):
            lora.convert(model, base)


@pytest.mark.parametrize("assign", [False, True])
def test_a_state_dict_may_be_assigned(assign):
    layer, plain = nn.Linear(64, 4).requires_grad_(False), nn.Linear(64, 4)
    lora.convert(layer, "nf4")
    layer.load_state_dict(plain.state_dict(), assign=assign)
    assert layer.codes.dtype == torch.uint8 and list(layer.state_dict()) == ["weight", "bias"]
    expected = lora.convert(plain.requires_grad_(False), "nf4")
    assert torch.equal(layer.weight, expected.weight)


def test_what_is_refused():
    with pytest.raises(ValueError, match="base is 'int4', expected one of bf16, nf4, int8"):
        lora.convert(adapted(), "int4")
    with pytest.raises(ValueError, match="no nn.Linear whose weight is frozen and not converted"):
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
