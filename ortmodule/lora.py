"""A frozen base in few bits, beside which adapters are trained.

`from ortmodule import lora; lora.convert(model, base="nf4")`, before or after peft's
get_peft_model. Dettmers et al., 2023, "QLoRA".
"""

from collections.abc import Iterator

from torch import nn

from .quantized import BLOCK, FORMATS, Compact, CompactEmbedding, CompactLinear

BASES = ("bf16", *FORMATS)


def convert(model: nn.Module, base: str = "bf16") -> nn.Module:
    """Keeps every frozen weight of an nn.Linear of `model` as `base`, bf16, int8 or nf4, and every
    frozen table of an nn.Embedding as bf16.

    The layers stay where they are, with their hooks; their weight is no parameter any more, reads
    as floats and is kept anew where it is written to (peft's merge), and state_dicts have it as
    floats. A weight stays as it is where it is trained, belongs to an adapter, is tied to another
    one, or has no whole blocks of 64 elements. bitsandbytes' Linear4bit in nf4 by blocks of 64
    keeps its codes and scales (base nf4, before get_peft_model). Gives the model. Raises ValueError
    for another base, where nothing is frozen, and for a Linear4bit that peft has wrapped.
    """
    if base not in BASES:
        raise ValueError(f"base is {base!r}, expected one of {', '.join(BASES)}")
    layers, packed = list(_frozen(model)), list(_of_bitsandbytes(model)) if base == "nf4" else []
    if not packed and not any(isinstance(layer, nn.Linear) for layer in layers):
        raise ValueError(
            f"{type(model).__name__} has no nn.Linear whose weight is frozen: "
            "call requires_grad_(False) on it, or peft's get_peft_model, first"
        )
    for layer in layers:
        if isinstance(layer, nn.Embedding):
            Compact.become(layer, CompactEmbedding, "bf16", layer.weight.detach())
        elif base == "bf16" or layer.weight.numel() % BLOCK == 0:
            Compact.become(layer, CompactLinear, base, layer.weight.detach())
    for layer in packed:
        from bitsandbytes.functional import dequantize_4bit

        floats = dequantize_4bit(layer.weight.data, layer.weight.quant_state)
        Compact.become(layer, CompactLinear, base, floats)  # whose codes and scales are the same
    return model


def _of_bitsandbytes(model: nn.Module) -> Iterator[nn.Module]:
    """Layers of the package that are nf4 by our blocks."""
    for name, module in model.named_modules():
        home, kind = type(module).__module__.partition(".")[0], type(module).__name__
        if home == "peft" and kind == "Linear4bit":
            raise ValueError(f"{name} is peft's Linear4bit: convert before get_peft_model")
        if home == "bitsandbytes" and kind in ("Linear4bit", "LinearNF4"):
            state = getattr(module.weight, "quant_state", None)
            if state is not None and state.quant_type == "nf4" and state.blocksize == BLOCK:
                yield module


def _frozen(model: nn.Module) -> Iterator[nn.Module]:
    """Linear layers and embeddings that are no adapter's."""
    adapters = {m for module in model.modules() for m in _adapters(module)}
    places: dict[int, int] = {}
    for _, p in model.named_parameters(remove_duplicate=False):
        places[id(p)] = places.get(id(p), 0) + 1
    for module in model.modules():
        kind, weight = type(module), getattr(module, "weight", None)
        takes = kind is nn.Linear or (kind is nn.Embedding and module.max_norm is None)
        if not takes or module in adapters or weight.requires_grad:
            continue
        if weight.is_floating_point() and places[id(weight)] == 1:
            yield module


def _adapters(module: nn.Module) -> Iterator[nn.Module]:
    """What peft trains beside a base layer, and its copies of whole modules, which another adapter
    may train later."""
    names = list(getattr(module, "adapter_layer_names", ()))
    if isinstance(getattr(module, "modules_to_save", None), nn.ModuleDict):
        names.append("modules_to_save")
    for name in names:
        held = getattr(module, name, None)
        if isinstance(held, nn.Module):
            yield from held.modules()
