"""torch's attention, which a trace sees as an op of ours where the sizes are known to fit."""

import torch
import torch.nn.functional as F

from .table import Base, Case, case


def _heads(t: torch.Tensor, count: int = 1) -> torch.Tensor:
    """[5, 3] -> [2, count, 5, 3]."""
    return torch.stack([t, t * 2]).unsqueeze(1).expand(2, count, *t.shape)


@case(captured=True)
def of_one_tensor():
    def body(s, x):
        h = _heads(s.l(x))
        return F.scaled_dot_product_attention(h, h, h)

    return Case(Base(body))


@case(captured=True)
def of_other_lengths_in_each_call():
    def body(s, x, y):
        h, keys = _heads(s.l(x)), _heads(s.k(y))
        return F.scaled_dot_product_attention(h, keys, keys.tanh(), is_causal=True)

    def call(model, x, i):
        return model(x, torch.cat([x] * (i + 1)))

    return Case(Base(body), call=call)


@case(captured=True)
def heads_that_are_broadcast():
    def body(s, x):
        h, keys = _heads(s.l(x), 4), _heads(s.k(x))
        return F.scaled_dot_product_attention(h, keys, keys, scale=0.3)

    return Case(Base(body))


@case(captured=True)
def heads_in_groups():
    def body(s, x):
        h, keys = _heads(s.l(x), 4), _heads(s.k(x), 2)
        return F.scaled_dot_product_attention(h, keys, keys, enable_gqa=True)

    return Case(Base(body))


@case(captured=True)
def masks_of_every_kind():
    def body(s, x):
        h, keys = _heads(s.l(x)), _heads(s.k(x))
        bias = s.l.weight[:1, :1].expand(5, 5)  # it has a gradient
        allowed = torch.ones(5, 5, dtype=torch.bool).tril()
        rows = (x.sum(1) > -9).view(1, 1, 1, 5)
        masks = (bias, allowed, rows, allowed & rows, torch.where(rows, 0.0, -1e9))
        return [F.scaled_dot_product_attention(h, keys, keys, mask) for mask in masks]

    return Case(Base(body))


@case(captured=True)
def edited_outputs_and_inputs_of_it():
    def body(s, x):
        h, value = _heads(s.l(x)) * 1, _heads(s.k(x)) * 1
        return h, value, F.scaled_dot_product_attention(h, h, value)

    def call(model, x, i):
        h, value, out = model(x)
        with torch.no_grad():
            (h, value, out)[i].mul_(2)
        try:
            (out * 3).sum().backward()
        except RuntimeError:
            return out.detach(), "read by the backward"
        return out.detach()

    return Case(Base(body), call=call)


@case(captured=True)
def a_mask_that_does_not_fit_at_the_second_call():
    def body(s, x, mask):
        h = _heads(s.l(x))
        return F.scaled_dot_product_attention(h, h, h, mask)

    def call(model, x, i):
        return model(x, torch.ones(5, 4 if i == 1 else 5, dtype=torch.bool))

    return Case(Base(body), call=call)


@case(captured=True)
def outputs_that_lie_in_memory_as_the_query():
    def body(s, x):
        h = s.l(x)
        heads = torch.stack([h, h * 2, h * 3, h * 4]).view(2, 2, 5, 3)
        heads = heads.transpose(1, 2).contiguous().transpose(1, 2)
        wide = torch.cat([heads, heads], -1)
        kernels = (
            F.scaled_dot_product_attention(heads, heads, heads),
            F.scaled_dot_product_attention(heads.double(), heads.double(), heads.double()),
            F.scaled_dot_product_attention(heads, heads, wide),
            F.scaled_dot_product_attention(heads, heads, heads, h.new_zeros(2, 5, 5)),
        )
        merged = kernels[0].transpose(1, 2).view(2, 5, 6)
        return [*kernels, merged * (2 if kernels[0].is_contiguous() else 3)]

    return Case(Base(body))


@case(captured=True)
def a_dropout_that_is_no_probability_at_the_second_call():
    def body(s, x, dropout):
        h = _heads(s.l(x))
        return F.scaled_dot_product_attention(h, h, h, dropout_p=dropout)

    return Case(Base(body), call=lambda model, x, i: model(x, -0.5 if i == 1 else 0.0))
