"""A frozen base in few bits, beside which adapters are trained.

`from ortmodule import lora; lora.convert(model, base="nf4")`, before or after peft's
get_peft_model. Dettmers et al., 2023, "QLoRA".
"""

from collections import Counter
from collections.abc import Iterator

import torch
from torch import nn

from .lowbit.quantized import BLOCK, FORMATS, Compact, CompactEmbedding, CompactLinear, check, keep

BASES = ("bf16", *FORMATS)


def convert(model: nn.Module, base: str = "bf16") -> nn.Module:
    """Keeps every frozen weight of an nn.Linear of `model` as `base`, bf16, int8 or nf4, and every
    frozen table of an nn.Embedding as bf16.

    The layers stay where they are, with their hooks; their weight reads as floats and is kept anew
    where it is written to (peft's merge), and state_dicts have it as floats. A layer of which
    training is asked afterwards (requires_grad_, peft's modules_to_save) is one of floats again. A
    weight stays as it is where it is trained, belongs to an adapter, is tied to another one, is
    made of others (a parametrization), or has no whole blocks of 64 elements. bitsandbytes'
    Linear4bit in nf4 by blocks of 64 keeps its codes and scales (base nf4, before get_peft_model).
    Gives the model. Raises ValueError, before anything is converted, for another base, where
    nothing is left to convert, for numbers that the base cannot hold, and for a Linear4bit that
    peft has wrapped.
    """
    if base not in BASES:
        raise ValueError(f"base is {base!r}, expected one of {', '.join(BASES)}")
    packed = list(_of_bitsandbytes(model)) if base == "nf4" else []
    layers = {layer: _format(layer, base) for layer in _frozen(model)}
    if not packed and not any(isinstance(layer, nn.Linear) for layer in layers):
        raise ValueError(
            f"{type(model).__name__} has no nn.Linear whose weight is frozen and not converted: "
            "call requires_grad_(False) on it, or peft's get_peft_model, first"
        )
    layers = {layer: format for layer, format in layers.items() if format is not None}
    _check(model, layers)
    for layer, format in layers.items():
        kind = CompactLinear if isinstance(layer, nn.Linear) else CompactEmbedding
        Compact.become(layer, kind, format, keep(layer.weight, format), layer.weight)
    for layer in packed:
        state = layer.weight.quant_state
        like = layer.weight.data.new_empty((), dtype=state.dtype).expand(state.shape)
        Compact.become(layer, CompactLinear, base, _unpacked(layer.weight), like)
    return model


def _format(layer: nn.Module, base: str) -> str | None:
    if isinstance(layer, nn.Embedding):
        return "bf16"
    return base if base == "bf16" or layer.weight.numel() % BLOCK == 0 else None


def _check(model: nn.Module, layers: dict[nn.Module, str]) -> None:
    for name, module in model.named_modules():
        if module in layers:
            try:
                check(module.weight, layers[module])
            except ValueError as error:
                raise ValueError(f"{name}.weight: {error}" if name else str(error)) from None


def _of_bitsandbytes(model: nn.Module) -> Iterator[nn.Module]:
    """Layers of the package that are nf4 by our blocks."""
    for name, module in model.named_modules():
        home, kind = type(module).__module__.partition(".")[0], type(module).__name__
        if home == "peft" and kind == "Linear4bit":
            raise ValueError(f"{name} is peft's Linear4bit: convert before get_peft_model")
        if home == "bitsandbytes" and kind in ("Linear4bit", "LinearNF4"):
            state = getattr(module.weight, "quant_state", None)
            if state is None or state.quant_type != "nf4" or state.blocksize != BLOCK:
                continue
            if state.shape.numel() % BLOCK == 0:
                yield module


def _unpacked(weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """A Params4bit's codes and scales; those may be packed themselves."""
    from bitsandbytes.functional import dequantize_blockwise

    state, scales = weight.quant_state, weight.quant_state.absmax
    if state.nested:
        scales = dequantize_blockwise(scales, state.state2) + state.offset
    return {"codes": weight.data.reshape(-1), "scales": scales.reshape(-1).float()}


def _frozen(model: nn.Module) -> Iterator[nn.Module]:
    """Linear layers and embeddings that are no adapter's."""
    adapters = {m for module in model.modules() for m in _adapters(module)}
    places = Counter(id(p) for module in model.modules() for p in module._parameters.values())
    for module in model.modules():
        kind, weight = type(module), module._parameters.get("weight")
        takes = kind is nn.Linear or (kind is nn.Embedding and module.max_norm is None)
        if not takes or module in adapters or weight is None or weight.requires_grad:
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
