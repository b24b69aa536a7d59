"""Functions and inputs at which values or slopes are special: zeros, ties, bounds, nan, infinities,
saturation, denormals, nothing, one element. test_kinks.py compares the engine with eager on them.
"""

import torch
import torch.nn.functional as F

INF, NAN = float("inf"), float("nan")
TINY = 1e-40  # a denormal
SPECIAL = [0.0, -0.0, INF, -INF, NAN, 1.0, -1.0, 0.5, -0.5, 3.0, -3.0, 6.0, 20.0, -20.0, 89.0,
           -89.0, 104.0, -104.0, TINY, -TINY, 1e-30, 1e30, -1e30, 2.5, 1e-8, -1e-8, 8192.0,
           0.1]  # fmt: skip


# Where eager's own vectors are far off, or halves overflow between the parts of its gradient.
ASTRAY = {"sinh": {89.0, -89.0}, "cosh": {89.0, -89.0}, "gelu": {INF},
          "pow_4": {89.0, -89.0, 104.0, -104.0}, "pow": {6.0}}  # fmt: skip


def leaf(values, dtype=torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype).requires_grad_()


def blocks(name: str, dtype: torch.dtype) -> torch.Tensor:
    """Each special number as often as eager's vectors are long: beside them, at the end of a
    tensor, eager has other code, with other slopes of a NaN."""
    values = [value for value in SPECIAL if value not in ASTRAY.get(name, ())]
    return leaf([[value] * 64 for value in values], dtype)


def pairs(name: str, dtype: torch.dtype) -> tuple:
    """Every number with every other."""
    x = torch.tensor([v for v in OPERANDS if v not in ASTRAY.get(name, ())], dtype=dtype)
    a, b = torch.meshgrid(x, x, indexing="ij")
    return a.flatten().requires_grad_(), b.flatten().requires_grad_()


def _ordinary(x: torch.Tensor) -> torch.Tensor:
    """x without numbers whose squares overflow or vanish."""
    return torch.where(x.abs() < 1e-12, 0.0, x.clamp(-1e9, 1e9))


def _unit(x: torch.Tensor) -> torch.Tensor:
    """x without what lies outside of [0, 1]."""
    return torch.where((x >= 0) & (x <= 1), x, 0.5)


# One number in, one out: each on every special number, and on nothing.
POINTWISE = {
    **{n: getattr(torch, n) for n in (
        "abs", "neg", "exp", "log", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
        "cosh", "asinh", "acosh", "atanh", "erf", "erfc", "tanh", "sigmoid", "reciprocal", "sign",
        "sgn", "positive", "floor", "ceil", "round", "trunc", "frac", "rsqrt", "square", "exp2",
        "log2", "log10", "log1p", "expm1", "nan_to_num", "logit", "sinc", "relu", "deg2rad")},
    **{n: getattr(F, n) for n in (
        "gelu", "silu", "mish", "elu", "celu", "selu", "leaky_relu", "relu6", "hardtanh",
        "hardsigmoid", "hardswish", "softplus", "logsigmoid", "softshrink", "hardshrink",
        "tanhshrink", "softsign", "rrelu")},
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "elu_alpha": lambda x: F.elu(x, 0.3),
    "celu_alpha": lambda x: F.celu(x, 0.7),
    "hardtanh_bounds": lambda x: F.hardtanh(x, -3.0, 0.5),
    "softplus_beta": lambda x: F.softplus(x, 2.5, 6.0),
    "threshold": lambda x: F.threshold(x, 0.5, 9.0),
    "threshold_at": lambda x: F.threshold(x, -3.0, -1.0),
    "softshrink_wide": lambda x: F.softshrink(x, 3.0),
    "hardshrink_wide": lambda x: F.hardshrink(x, 3.0),
    "prelu": lambda x: F.prelu(x, torch.tensor([0.25], dtype=x.dtype)),
    "leaky_steep": lambda x: F.leaky_relu(x, 2.0),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "clamp_min": lambda x: x.clamp(min=0.0),
    "clamp_max": lambda x: x.clamp(max=3.0),
    "clamp_crossed": lambda x: x.clamp(1.0, -1.0),
    **{f"pow_{p}": (lambda x, p=p: x**p) for p in
       (0, 1, 2, 3, -1, -2, 0.5, -0.5, 1.5, 2.0, -3, 4, 1 / 3, 0.001, 2.0001, 257.0)},
    **{f"base_{b}": (lambda x, b=b: b**x) for b in (0.0, 1.0, 2.0, 0.5, 1.001)},
    "add_zero": lambda x: x + 0, "add_minus_zero": lambda x: x + -0.0,
    "sub_zero": lambda x: x - 0, "zero_minus": lambda x: 0 - x,
    "mul_zero": lambda x: x * 0, "mul_one": lambda x: x * 1, "div_one": lambda x: x / 1,
    "mul_nan": lambda x: x * NAN, "add_nan": lambda x: x + NAN, "div_nan": lambda x: x / NAN,
    "mul_inf": lambda x: x * INF, "div_zero": lambda x: x / 0, "zero_over": lambda x: 0 / x,
    "minus_itself": lambda x: x - x, "over_itself": lambda x: x / x.detach(),
    "log_softplus": lambda x: F.softplus(x).log(),
    "log1p_exp": lambda x: torch.log1p(x.exp()), "log_one_plus": lambda x: torch.log(1 + x),
    "exp_minus_one": lambda x: torch.exp(x) - 1,
    "mod_tenth": lambda x: torch.remainder(x, 0.1), "mod_inf": lambda x: x % INF,
    "fmod_tenth": lambda x: torch.fmod(x, 0.1), "mod_minus": lambda x: x % -0.7,
    "floor_div": lambda x: torch.div(x, 0.1, rounding_mode="floor"),
    "trunc_div": lambda x: torch.div(x, 0.1, rounding_mode="trunc"),
    "where_nan": lambda x: torch.where(x > 0, x, NAN),
    "masked_fill": lambda x: x.masked_fill(x > 0, -INF),
    "nan_to_num_all": lambda x: torch.nan_to_num(x, 1.0, 2.0, -2.0),
    "isnan": torch.isnan, "isinf": torch.isinf, "isfinite": torch.isfinite,
    "signbit": torch.signbit, "logical_not": torch.logical_not,
    "floor_log2": lambda x: torch.floor(torch.log2(x)),
    "double_negation": lambda x: torch.neg(-x),
    "swish_by_hand": lambda x: x * torch.sigmoid(x),
    "gelu_by_hand": lambda x: x * 0.5 * (1.0 + torch.erf(x / 2**0.5)),
    "rsqrt_by_hand": lambda x: 1 / torch.sqrt(x),
}  # fmt: skip

# Two numbers in: each on every pair of these.
OPERANDS = [0.0, -0.0, INF, -INF, NAN, 1.0, -1.0, 0.1, -0.7, 6.0, TINY, 1e30]
BINARY = {
    **{n: getattr(torch, n) for n in (
        "add", "sub", "mul", "div", "maximum", "minimum", "fmax", "fmin", "fmod", "remainder",
        "pow", "atan2", "logaddexp", "logaddexp2", "hypot", "copysign", "xlogy", "eq", "ne", "lt",
        "le", "gt", "ge")},
    "div_floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "div_trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "lerp": lambda x, y: torch.lerp(x, y, 0.3), "lerp_far": lambda x, y: torch.lerp(x, y, 0.8),
    "lerp_none": lambda x, y: torch.lerp(x, y, 0.0), "lerp_all": lambda x, y: torch.lerp(x, y, 1.0),
    "clamp_min_tensor": lambda x, y: torch.clamp(x, min=y),
    "clamp_max_tensor": lambda x, y: torch.clamp(x, max=y),
    "clamp_tensors": lambda x, y: torch.clamp(x, min=y, max=y + 1),
    "clamp_crossing": lambda x, y: torch.clamp(x, min=y, max=-y),
    "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.5),
    "addcdiv": lambda x, y: torch.addcdiv(x, x, y, value=0.5),
    "where": lambda x, y: torch.where(x > y, x, y), "rsub": lambda x, y: torch.rsub(x, y, alpha=2),
    "mse": lambda x, y: F.mse_loss(x, y, reduction="none"),
    "l1": lambda x, y: F.l1_loss(x, y, reduction="none"),
    "huber": lambda x, y: F.huber_loss(x, y, reduction="none", delta=0.7),
    "smooth_l1": lambda x, y: F.smooth_l1_loss(x, y, reduction="none", beta=0.7),
    "smooth_l1_zero": lambda x, y: F.smooth_l1_loss(x, y, reduction="none", beta=0.0),
    "kl_div": lambda x, y: F.kl_div(x, y, reduction="none"),
    "kl_div_log": lambda x, y: F.kl_div(x, y, reduction="none", log_target=True),
    "bce_logits": lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="none"),
    "bce": lambda x, y: F.binary_cross_entropy(_unit(x), _unit(y), reduction="none"),
    "bce_mean": lambda x, y: F.binary_cross_entropy(_unit(x), _unit(y), _unit(x).detach()),
    "bce_weighted": lambda x, y: F.binary_cross_entropy_with_logits(
        x, torch.sigmoid(y), reduction="none", pos_weight=torch.tensor(3.0, dtype=x.dtype)),
    "poisson": lambda x, y: F.poisson_nll_loss(x, y, reduction="none"),
    "soft_margin": lambda x, y: F.soft_margin_loss(x, y.detach(), reduction="none"),
    "hinge": lambda x, y: F.hinge_embedding_loss(x, y, reduction="none"),
}  # fmt: skip


def _low(x: torch.Tensor) -> torch.Tensor:
    """A mask that is torch's lowest number everywhere, as transformers make of padding."""
    return torch.full((2, 3), torch.finfo(x.dtype).min)


# Rows: ties, constants, zeros, infinities, a nan, masked wholly or in part, large, denormal.
ROWS = [[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0], [0.0, -0.0, 0.0, -0.0], [2.0, 5.0, 5.0, -1.0],
        [-INF, -INF, -INF, -INF], [-INF, 1.0, -INF, 2.0], [INF, 1.0, 2.0, 3.0],
        [INF, INF, 1.0, 0.0], [NAN, 1.0, 2.0, 3.0], [1.0, NAN, NAN, 7.0], [INF, -INF, 1.0, 2.0],
        [1e30, -1e30, 1.0, 2.0], [TINY, 0.0, -TINY, TINY], [100.0, 100.0, -100.0, 88.0],
        [3.0, 0.0, 2.0, 0.0], [1e4, 1e4 - 8, 1e4 - 16, 0.0]]  # fmt: skip
ROWWISE = {
    **{n: (lambda x, n=n: getattr(torch, n)(x, dim=-1)) for n in (
        "sum", "mean", "amax", "amin", "prod", "var", "logsumexp", "softmax", "log_softmax",
        "cumsum", "argmax", "argmin", "any", "all", "nansum", "count_nonzero", "nanmean",
        "cumprod", "logcumsumexp")},
    **{n: (lambda x, n=n: getattr(torch, n)(x, dim=-1)) for n in
       ("max", "min", "sort", "median", "var_mean", "cummax", "mode")},
    "sort_down": lambda x: torch.sort(x, dim=-1, descending=True),
    "argsort": lambda x: torch.argsort(x, dim=-1, stable=True),
    "topk": lambda x: torch.topk(x, 2, dim=-1),
    "topk_least": lambda x: torch.topk(x, 3, dim=-1, largest=False),
    "kthvalue": lambda x: torch.kthvalue(x, 2, dim=-1),
    # Outside of this the variance or its slope overflows, or underflows; eager's sums are float64.
    "std": lambda x: torch.std(_ordinary(x), dim=-1),
    "std_mean": lambda x: torch.std_mean(_ordinary(x), dim=-1),
    "std_biased": lambda x: torch.std(_ordinary(x), dim=-1, correction=0),
    "std_none_left": lambda x: torch.std(x[..., :1], dim=-1),
    "var_all": lambda x: torch.var(x[0]),
    **{f"norm_{p}": (lambda x, p=p: torch.linalg.vector_norm(x, p, dim=-1)) for p in
       (0.5, 1, 1.5, 2, 3, INF, -INF)},
    # torch takes these apart, and the parts have slopes of their own too
    "linalg_norm": lambda x: [torch.linalg.norm(row, 0.5) for row in x],
    "norm": lambda x: x.norm(dim=-1), "norm_3": lambda x: x.norm(p=3, dim=-1),
    **{f"{n}_below_{o}": (lambda x, f=f, o=o: getattr(torch, o)(f(x[:6], dim=-1)))
       for n, f in {"norm": torch.linalg.vector_norm, "std": torch.std}.items()
       for o in ("log", "sqrt", "rsqrt", "reciprocal")},
    "normalize": lambda x: F.normalize(x, dim=-1),
    "normalize_no_eps": lambda x: F.normalize(x[:6], dim=-1, eps=0.0) * INF,
    "softmin": lambda x: F.softmin(x, dim=-1),
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
    "rms_norm": lambda x: F.rms_norm(x, (4,)),
    "max_all": lambda x: [row.max() for row in x], "min_all": lambda x: [row.min() for row in x],
    "prod_all": lambda x: [row.prod() for row in x],
    "cross_entropy": lambda x: F.cross_entropy(x, torch.arange(len(x)) % 4, reduction="none"),
    "cross_entropy_smooth": lambda x: F.cross_entropy(
        x, torch.arange(len(x)) % 4, reduction="none", label_smoothing=0.1),
    "nll_loss": lambda x: F.nll_loss(x, torch.arange(len(x)) % 4, reduction="none"),
    "nll_ignored": lambda x: F.nll_loss(x, torch.arange(len(x)) % 4, ignore_index=1,
                                        reduction="none"),
    "nll_weighted": lambda x: F.nll_loss(x, torch.arange(len(x)) % 4, reduction="none",
                                         weight=torch.tensor([0.0, 1.0, 2.0, 3.0])),
    "cosine": lambda x: F.cosine_similarity(x, x.flip(0), dim=-1),
    "pairwise": lambda x: F.pairwise_distance(x, x.flip(0)),
    "pairwise_same": lambda x: F.pairwise_distance(x, x, eps=0.0),
    "dist": lambda x: torch.cdist(x[:3], x[:3]),
    "max_pool": lambda x: F.max_pool1d(x[None], 2, 1),
    "avg_pool": lambda x: F.avg_pool1d(x[None], 2, 1, 1),
    "lp_pool": lambda x: F.lp_pool1d(x[None], 2, 2),
    "adaptive_max": lambda x: F.adaptive_max_pool1d(x[None], 1),
    "adaptive_max_two": lambda x: F.adaptive_max_pool1d(x[None], 2),
    "adaptive_max_three": lambda x: F.adaptive_max_pool1d(x[None], 3),
    "adaptive_avg": lambda x: F.adaptive_avg_pool1d(x[None], 3),
    "glu": lambda x: F.glu(x, -1),
    "gumbel_free": lambda x: (x.softmax(-1) * x).sum(-1),
    "attention_all_masked": lambda x: F.scaled_dot_product_attention(
        x[None, 13:15, :2], x[None, 3:6, :2], x[None, 13:16, 2:], _low(x)),
    "attention_large": lambda x: F.scaled_dot_product_attention(
        1e3 * x[None, 13:15, :2], x[None, 13:16, :2], x[None, 13:16, 2:]),
    **{f"{n}_of_none": (lambda x, n=n: getattr(torch, n)(x[:0], dim=0)) for n in
       ("sum", "prod", "any", "all", "nansum", "count_nonzero")},
    **{f"{n}_of_a_number": (lambda x, n=n: getattr(torch, n)(x[3, 1], dim=0)) for n in
       ("sum", "mean", "var", "std", "amax", "max", "softmax", "cumsum")},
    **{f"var_{c}": (lambda x, c=c: torch.var(x, dim=-1, correction=c)) for c in (0, 2, 9)},
    "addmm_nothing_kept": lambda x: torch.addmm(x[:4] * 0 + NAN, x[12:16].T, x[12:16], beta=0),
    "addmm_no_product": lambda x: torch.addmm(x[2], x, x.T[:, :4], alpha=0),
    "addmm_nothing": lambda x: torch.addmm(x[2], x[:, :0], x[:0], beta=2),
    "addmv_no_product": lambda x: torch.addmv(x[:, 0], x, x[6], alpha=0, beta=0),
    "addbmm_no_product": lambda x: torch.addbmm(x[:4], x[None, 5:9], x[None, :4], alpha=0.0),
    "baddbmm_no_product": lambda x: torch.baddbmm(x[None, :4], x[None, 5:9], x[None, :4], alpha=0),
    "addr_no_product": lambda x: torch.addr(x[:4], x[5], x[6], alpha=0),
    "pad_minus_zero": lambda x: 1 / F.pad(x, (1, 1), value=-0.0),
    "sub_nothing": lambda x: 1 / torch.sub(x, x.flip(0), alpha=0),
    "rsub_nothing": lambda x: 1 / torch.rsub(x, x.flip(0), alpha=0),
    "gather": lambda x: x.gather(1, torch.tensor([[3, 3, 0]]).expand(len(x), 3)),
    **{f"scatter_{n}": lambda x, n=n: x.scatter_reduce(1, torch.tensor([[0, 0, 1, 1]] * len(x)),
                                                       x, n)
       for n in ("prod", "amax", "amin")},
}  # fmt: skip
