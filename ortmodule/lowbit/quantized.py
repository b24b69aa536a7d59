"""Layers whose frozen weight is kept in few bits, and the product that reads it there.

lora.convert makes them; translate/rules/quantized.py has the rule.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from ..torch_internals.tracing import check_number
from .shown import FrozenWeight, Weight

BLOCK = 64  # elements, as they lie row by row, that have one scale
_PIECE = 1 << 22  # elements that are quantized at a time
# Quantiles of a normal distribution, scaled to [-1, 1]. Dettmers et al., 2023, appendix E.
NORMAL_FLOATS = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
)  # fmt: skip


class Format(NamedTuple):
    """What a weight is kept as: `quantize(weight)` gives codes and scales, of which `dequantize`
    makes a float32 weight of as many elements, as they lie."""

    quantize: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
    dequantize: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def check(weight: torch.Tensor, format: str) -> None:
    """Raises ValueError for a weight that has no numbers, or some that `format` cannot hold."""
    if weight.is_meta:
        raise ValueError("a weight is on meta, where it has no numbers to keep")
    if format != "bf16" and weight.numel() % BLOCK:
        raise ValueError(f"a weight has shape {list(weight.shape)}, expected blocks of {BLOCK}")
    ends = torch.stack(torch.aminmax(weight.detach())) if weight.numel() else weight.new_zeros(())
    if format != "bf16" and not ends.float().isfinite().all():
        raise ValueError("a weight has numbers that are not finite, which no block can hold")
    if format == "bf16" and (ends.isfinite() & ends.bfloat16().isinf()).any():
        raise ValueError("a weight has numbers beyond those of bfloat16")


def _blocks(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    blocks = weight.detach().float().reshape(-1, BLOCK)
    return blocks, blocks.abs().amax(1)


def _to_nf4(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """w = table[code] * scale, scale = the block's largest |w|; the nearest number of the table."""
    blocks, scales = _blocks(weight)
    table = torch.tensor(NORMAL_FLOATS)
    between = ((table[1:].double() + table[:-1].double()) / 2).float()
    shares = blocks / scales.where(scales > 0, 1)[:, None]
    codes = torch.bucketize(shares, between).to(torch.uint8).reshape(-1, 2)
    return codes[:, 0] << 4 | codes[:, 1], scales


def _of_nf4(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    table = torch.tensor(NORMAL_FLOATS, device=codes.device)
    both = torch.stack([codes // 16, codes & 15], 1).int()
    return (table[both].reshape(-1, BLOCK) * scales[:, None]).reshape(-1)


def _to_int8(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """w = code * scale, scale = the block's largest |w| / 127; the nearest code."""
    blocks, largest = _blocks(weight)
    scales = largest / 127
    codes = (blocks / scales.where(scales > 0, 1)[:, None]).round().clamp(-127, 127)
    return codes.to(torch.int8).reshape(-1), scales


def _of_int8(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    return (codes.reshape(-1, BLOCK).float() * scales[:, None]).reshape(-1)


FORMATS = {"nf4": Format(_to_nf4, _of_nf4), "int8": Format(_to_int8, _of_int8)}


def quantize(weight: torch.Tensor, format: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The codes of `weight`, uint8 with two to a byte (nf4) or int8, and float32 scales of blocks.

    Raises as check().
    """
    check(weight, format)
    made = [FORMATS[format].quantize(piece) for piece in weight.reshape(-1).split(_PIECE)]
    codes, scales = zip(*made, strict=True)
    return torch.cat(codes), torch.cat(scales)


@torch.inference_mode(False)  # what is made within it could not be written to after it
@torch.no_grad()
def keep(weight: torch.Tensor, format: str) -> dict[str, torch.Tensor]:
    """The buffers that hold `weight`, of those that KEPT names. Raises as check()."""
    if format == "bf16":
        check(weight, format)
        return {"codes": weight.to(torch.bfloat16, copy=True)}
    codes, scales = quantize(weight, format)
    return {"codes": codes, "scales": scales}


KEPT = {"codes", "scales"}


@torch.library.custom_op("ortmodule_lora::linear", mutates_args=())
def linear(
    x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, format: str, rows: int,
    columns: int, transposed: bool,
) -> torch.Tensor:  # fmt: skip
    """x w^T, or x w where it is transposed, for w [rows, columns] in `format`; in float32 where x
    is narrower, rounded once."""
    w = FORMATS[format].dequantize(codes, scales).reshape(rows, columns)
    wide = x if x.dtype == torch.float64 else x.float()
    return F.linear(wide, (w.T if transposed else w).to(wide.dtype)).to(x.dtype)


@linear.register_fake
def _(x, codes, scales, format, rows, columns, transposed):
    inner, outer = (rows, columns) if transposed else (columns, rows)
    check_number(
        x.shape[-1] == inner, lambda: f"x has shape {list(x.shape)}, expected [.., {inner}]"
    )
    return x.new_empty([*x.shape[:-1], outer])


def _keep(ctx: Any, inputs: tuple, output: Any) -> None:
    _, codes, scales, *ctx.others = inputs
    ctx.save_for_backward(codes, scales)


def _gradient(ctx: Any, dy: torch.Tensor) -> tuple:
    format, rows, columns, transposed = ctx.others
    dx = linear(dy.contiguous(), *ctx.saved_tensors, format, rows, columns, not transposed)
    return dx, None, None, None, None, None, None


linear.register_autograd(_gradient, setup_context=_keep)


class Compact(nn.Module):
    """A layer with a frozen weight that is kept as `format`: bf16, or as quantize() has it.

    Of the weight a parameter without elements stands in the layer. Who asks it to train, or the
    weight itself, gets the layer of floats that it was. A state_dict has `weight` as floats, and
    loading one keeps it as `format`. Moving the module to another dtype changes that of `weight` as
    it is shown, never how it is kept.
    """

    plain: type[nn.Module]
    format: str
    shape: torch.Size

    def become(
        self, kind: type["Compact"], format: str, kept: dict[str, torch.Tensor], like: torch.Tensor
    ) -> None:
        """A layer with a parameter `weight` is one of `kind`, hooks and all, which keeps it as
        `kept` and shows it as `like` is."""
        self.__class__ = kind
        self.format, self.shape = format, like.shape
        self._parameters["weight"] = FrozenWeight.of(self, like)
        for name, buffer in kept.items():
            self.register_buffer(name, buffer, persistent=False)

    def thaw(self) -> nn.Parameter:
        """The layer has its weight as a parameter again, which is trained; gives it."""
        weight = nn.Parameter(self.floats())
        for name in KEPT & self._buffers.keys():
            delattr(self, name)
        del self.format, self.shape
        self.__class__ = self.plain
        self._parameters["weight"] = weight
        return weight

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        self._parameters["weight"] = FrozenWeight.of(self, self._parameters["weight"])

    @property
    def dtype(self) -> torch.dtype:
        """Of the weight as it is shown."""
        return self._parameters["weight"].dtype

    def floats(self) -> torch.Tensor:
        """The weight, made anew."""
        if self.format == "bf16":
            return self.codes.to(self.dtype, copy=True)
        made = FORMATS[self.format].dequantize(self.codes, self.scales)
        return made.reshape(self.shape).to(self.dtype)

    @property
    def weight(self) -> torch.Tensor:
        """As floats: a Weight."""
        if type(self.codes) is not torch.Tensor or torch.compiler.is_dynamo_compiling():
            return self.floats()  # what is traced is written nowhere
        with torch.inference_mode(False), torch.no_grad():  # which would not count its writes
            return Weight.of(self, self.floats())

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "weight":
            self.keep(value.detach())
        else:
            super().__setattr__(name, value)

    @torch.no_grad()
    def keep(self, weight: torch.Tensor) -> None:
        """Other values for the weight. Raises ValueError for another shape, and as check()."""
        if weight.shape != self.shape:
            found, expected = list(weight.shape), list(self.shape)
            raise ValueError(f"weight has shape {found}, expected {expected}")
        for name, buffer in keep(weight, self.format).items():
            getattr(self, name).copy_(buffer)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, format={self.format}"

    def _apply(self, fn, recurse=True):
        kept = {name: self._buffers[name] for name in KEPT & self._buffers.keys()}
        super()._apply(fn, recurse)
        for name, before in kept.items():
            moved = self._buffers[name]
            if moved.dtype != before.dtype:
                self._buffers[name] = before.to(moved.device)
        if not isinstance(
            self._parameters["weight"], FrozenWeight
        ):  # future.overwrite_module_params
            self._parameters["weight"] = FrozenWeight.of(self, self._parameters["weight"])
        return self

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}weight"] = self.floats()

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ):
        key = f"{prefix}weight"
        others = {k: v for k, v in state_dict.items() if k != key}
        parameters = self._parameters
        self._parameters = {k: v for k, v in parameters.items() if k != "weight"}
        super()._load_from_state_dict(
            others, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        self._parameters = parameters | self._parameters
        if key not in state_dict:
            missing_keys.extend([key] if strict else [])
            return
        try:
            self.keep(state_dict[key])
        except ValueError as error:
            error_msgs.append(f"{key}: {error}")


class CompactLinear(Compact, nn.Linear):
    """y = x w^T + b with a frozen w [out_features, in_features].

    bf16: x is rounded to bfloat16 for the product, whose sums are float32, and y has x's dtype.
    nf4, int8: computed in float32, under autocast with x and y of its dtype.
    """

    plain = nn.Linear

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kind = x.device.type
        if self.format == "bf16":
            y = F.linear(x.to(self.codes.dtype), self.codes).to(x.dtype)
        else:
            if torch.is_autocast_enabled(kind) and x.dtype != torch.float64:
                x = x.to(torch.get_autocast_dtype(kind))
            y = linear(x, self.codes, self.scales, self.format, *self.shape, False)
        return y if self.bias is None else y + self.bias.to(y.dtype)


class CompactEmbedding(Compact, nn.Embedding):
    """Rows of a frozen table [num_embeddings, embedding_dim] that is kept as bf16."""

    plain = nn.Embedding

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return F.embedding(ids, self.codes, self.padding_idx).to(self.dtype)
