"""Calls of ATen ops that have a rule, for translate/test_translate.py and test_gradients.py."""

import torch
import torch.nn.functional as F
from torchvision import ops as vision

torch.manual_seed(0)
X = torch.randn(3, 4, 6)
Y = torch.randn(3, 4, 6)
POSITIVE = torch.rand(3, 4, 6) + 0.1
IMAGE = torch.randn(2, 4, 8, 8)
BOXES = torch.tensor([[0, 0.3, 0.2, 5.2, 6.1], [1, 2.1, 1.3, 7.4, 7.2]])
INTS = torch.randint(-5, 6, (3, 4))
BOOLS = torch.tensor([[True, False, True], [False, False, True]])
INDEX = torch.tensor([2, 0, 1, 2])
GRAD = X.clone().requires_grad_()
A, B = torch.randn(5, 3), torch.randn(3, 4)
LABELS = torch.tensor([1, 0, 3])
LOGITS = torch.randn(3, 5)

UNARY = [
    "abs",
    "neg",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "atanh",
    "erf",
    "sigmoid",
    "reciprocal",
    "sign",
    "floor",
    "ceil",
    "round",
    "trunc",
    "frac",
    "square",
    "exp2",
    "log2",
    "log1p",
    "expm1",
    "isnan",
    "isinf",
    "isfinite",
    "logical_not",
    "positive",
    "nan_to_num",
]
BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "maximum",
    "minimum",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "fmod",
    "remainder",
    "floor_divide",
]
LOGICAL = ["logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor"]
ACTIVATION = [
    "relu",
    "gelu",
    "silu",
    "mish",
    "elu",
    "celu",
    "selu",
    "leaky_relu",
    "relu6",
    "hardtanh",
    "hardsigmoid",
    "hardswish",
    "softplus",
    "logsigmoid",
    "softshrink",
    "hardshrink",
    "tanhshrink",
    "softsign",
    "glu",
]
REDUCE = [
    "sum",
    "mean",
    "amax",
    "amin",
    "var",
    "std",
    "logsumexp",
    "prod",
    "argmax",
    "argmin",
    "any",
    "all",
]


def _with(name, *args, **kwargs):
    return lambda x: getattr(torch, name)(x, *args, **kwargs)


REDUCED = ("sum", "prod", "amax", "amin")

OPS = {
    **{f"unary_{n}": (getattr(torch, n), POSITIVE * 0.8) for n in UNARY},
    "acosh": (torch.acosh, POSITIVE + 1),
    **{f"binary_{n}": (getattr(torch, n), X, Y) for n in BINARY},
    **{f"scalar_{n}": (_with(n, 2.5), X) for n in BINARY if n[:2] not in
       ("ma", "mi")},
    **{f"ints_{n}": (_with(n, 3), INTS) for n in
       ("add", "mul", "div", "eq", "remainder", "floor_divide", "fmod")},
    **{n: (getattr(torch, n), BOOLS, ~BOOLS) for n in LOGICAL},
    **{f"act_{n}": (getattr(F, n), X) for n in ACTIVATION},
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), X),
    "prelu": (F.prelu, X, torch.rand(4)),
    "det": (lambda x: torch.linalg.det(x) + x.det(), torch.randn(3, 4, 4)),
    "roi_align": (lambda x: vision.roi_align(x, BOXES, (3, 2), 0.7), IMAGE),
    "roi_pool": (lambda x: vision.roi_pool(x, BOXES, (3, 2), 0.7), IMAGE),
    "deform_conv2d": (vision.deform_conv2d, IMAGE, torch.randn(2, 8, 7, 7),
                      torch.randn(3, 4, 2, 2)),
    "threshold": (lambda x: F.threshold(x, 0.1, 20.0), X),
    "sub_alpha": (lambda x, y: torch.sub(x, y, alpha=2), X, Y),
    "rsub": (lambda x: 1 - x, X),
    "mixed_types": (lambda x, i: x * i + i / 2, X[0, 0], torch.arange(6)),
    "int_times_float": (lambda i: i * 2.5, INTS),
    "bool_plus_bool": (lambda a: a + a, BOOLS),
    "div_floor": (lambda x, y: torch.div(x, y, rounding_mode="floor"), X, Y),
    "div_trunc": (lambda x, y: torch.div(x, y, rounding_mode="trunc"), X, Y),
    "int_div_floor": (lambda x: torch.div(x, 3, rounding_mode="floor"), INTS),
    "pow": (lambda x: x**2 + x**0.5 + 2**x + x**x, POSITIVE),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.3), X, Y),
    "addcmul": (lambda x, y: torch.addcmul(x, x, y, value=0.5), X, Y),
    "addcdiv": (lambda x, y: torch.addcdiv(x, x, y, value=0.5), X, POSITIVE),
    "clamp": (lambda x: x.clamp(-0.5, 0.5) + x.clamp(min=0) + x.clamp(max=1), X),
    "clamp_tensor": (lambda x, y: torch.clamp(x, min=y), X, Y),
    "where": (lambda x, y: torch.where(x > 0, x, y) + torch.where(x > 0, x, -1.0), X, Y),
    "masked_fill": (lambda x: x.masked_fill(x > 0, -1e9), X),
    "casts": (lambda x: x.long().float() + x.to(torch.int32).to(x.dtype) + x.bool().float(), X),
    "in_place": (lambda x: (x + 1).add_(1).mul_(2).relu_().clamp_(max=3), X),
    "linear": (F.linear, X, torch.randn(5, 6), torch.randn(5)),
    "matmul": (lambda a, b: (a @ b, a.mm(b), a[0] @ b, a @ b[:, 0], a[0] @ a[1]), A, B),
    "bmm": (torch.bmm, X, Y.transpose(1, 2)),
    "addmm": (lambda a, b, c: torch.addmm(c, a, b, beta=0.5, alpha=2), A, B, torch.randn(4)),
    "baddbmm": (torch.baddbmm, torch.randn(3, 4, 4), X, Y.transpose(1, 2)),
    "outer": (torch.outer, A[:, 0], B[0]),
    "einsum": (lambda x, y: (
        torch.einsum("bij,bkj->bik", x, y), torch.einsum("bij,bij->b", x, y),
        torch.einsum("...ij->...ji", x) * 2, torch.einsum("bij,bij", x, y),
        torch.einsum("bij,bkj,bi->k", x, y, x[..., 0])), X, Y),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (4, 6), w, b), X, Y[0], Y[1]),
    "layer_norm_bare": (lambda x: F.layer_norm(x, (6,)), X),
    "rms_norm": (lambda x, w: F.rms_norm(x, (6,), w, 1e-6), X, Y[0, 0]),
    "group_norm": (lambda x, w: F.group_norm(x, 2, w, w + 1), IMAGE, torch.rand(4)),
    "instance_norm": (lambda x: F.instance_norm(x), IMAGE),
    "softmax": (lambda x: x.softmax(-1) + x.log_softmax(1), X),
    "cross_entropy": (lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), LOGITS, LABELS),
    "cross_entropy_soft": (lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), LOGITS,
                           LOGITS.softmax(1)),
    "cross_entropy_vector": (lambda x: F.cross_entropy(x, torch.tensor(2)), LOGITS[0]),
    "nll_loss": (lambda x, y, w: F.nll_loss(x, y, w) + F.nll_loss(x, y, ignore_index=1), LOGITS,
                 LABELS, torch.rand(5)),
    "nll_loss_2d": (F.nll_loss, torch.randn(2, 5, 3, 3), torch.randint(0, 5, (2, 3, 3))),
    "mse": (F.mse_loss, X, Y), "l1": (F.l1_loss, X, Y), "huber": (F.huber_loss, X, Y),
    "smooth_l1": (lambda x, y: F.smooth_l1_loss(x, y, beta=0.5, reduction="sum"), X, Y),
    "bce": (F.binary_cross_entropy, X.sigmoid(), Y.sigmoid()),
    "bce_logits": (lambda x, y, w: F.binary_cross_entropy_with_logits(
        x, y, weight=w, pos_weight=w + 1), X, Y.sigmoid(), torch.rand(6)),
    "kl_div": (F.kl_div, X.log_softmax(-1), Y.softmax(-1)),
    "kl_div_log": (lambda x, y: F.kl_div(x, y, log_target=True), X.log_softmax(-1),
                   Y.log_softmax(-1)),
    "cosine_similarity": (F.cosine_similarity, X, Y),
    "margin_ranking": (F.margin_ranking_loss, X[0, 0], X[0, 1], X[0, 2].sign()),
    "normalize": (F.normalize, X),
    "vector_norms": (lambda x: tuple(torch.linalg.vector_norm(x, p, dim=-1) for p in
                                     (0, 1, 2, 3, float("inf"))), X),
    **{f"reduce_{n}": (_with(n, dim=1), X.abs() * 0.9) for n in REDUCE},
    "reduce_all": (lambda x: (x.sum(), x.mean(), x.max(), x.min(), x.var(), x.std(), x.argmax(),
                              x.norm(), x.prod()), X),
    "reduce_ints": (lambda i: (i.sum(), i.bool().sum(1), i.amax(0)), INTS),
    "max_dim": (lambda x: (*x.max(1), *x.min(-1, keepdim=True)), X),
    "var_mean": (lambda x: torch.var_mean(x, dim=-1, correction=0), X),
    "cumsum": (lambda x, i: (x.cumsum(1), i.cumsum(0)), X, INTS),
    "cumprod": (lambda x, i: (x.cumprod(1), i.cumprod(0)), X, INTS),
    "count_nonzero": (torch.count_nonzero, INTS),
    "nansum": (torch.nansum, torch.tensor([1.0, float("nan"), 2.0])),
    "views": (lambda x: (x.view(3, 24), x.reshape(-1, 2), x.flatten(1), x.unflatten(2, (2, 3)),
                         x.transpose(0, 2), x.permute(2, 0, 1), x[0].t(), x.movedim(0, 2),
                         x.unsqueeze(1), x.unsqueeze(1).squeeze(1), x[:1].expand(5, 4, 6)), X),
    "slices": (lambda x: (x[1:], x[:, -2:], x[..., ::2], x[:, 1], x[-1], x.narrow(1, 1, 2)), X),
    "splits": (lambda x: (*x.split(2, 1), *x.chunk(3, 2), *x.unbind(0), *x.split([1, 3], 1)), X),
    "joins": (lambda x, y: (torch.cat([x, y], 1), torch.stack([x, y], -1), torch.hstack([x, y])),
              X, Y),
    "cat_empty": (lambda x: torch.cat([torch.tensor([]), x], -2), X),
    "repeats": (lambda x: (x.repeat(2, 1, 1, 2), x.tile(2), x.repeat_interleave(3, 1)), X),
    "flip_roll": (lambda x: (x.flip(0, 2), x.roll(1, 1), x.roll((1, -2), (0, 2)), x.roll(3)), X),
    "pads": (lambda x: (F.pad(x, (1, 2)), F.pad(x, (1, 1), value=3.0), F.pad(x, (1, 2), "reflect"),
                        F.pad(x, (2, 1), "replicate")), X),
    "triangles": (lambda x: (x.tril(), x.triu(1), x.tril(-1)), X),
    "unfold": (lambda x: x.unfold(2, 3, 2), X),
    "strided": (lambda x: (x.as_strided((2, 3), (5, 1)),
                           (x + 1).as_strided((3, 2, 2), (1, 2, 1), 4),
                           (x * 2).transpose(0, 2).as_strided((4, 3), (5, 2))), X),
    "diagonal": (lambda x: (x.diagonal(1, 1, 2), x[0].diagonal()), X),
    "embedding": (lambda i, w: F.embedding(i, w, padding_idx=0), INTS.abs(), torch.randn(6, 5)),
    "gather": (lambda x, i: x.gather(1, i), X, torch.randint(0, 4, (3, 2, 6))),
    "take_along": (lambda x, i: torch.take_along_dim(x, i, 1), X, torch.randint(0, 4, (3, 2, 6))),
    "index_fill_twice": (lambda x, v: x.index_fill(1, torch.tensor([2, 1, 2]), v), X,
                         torch.tensor(0.3)),
    "index_select": (lambda x, i: x.index_select(0, i), X, INDEX),
    "index": (lambda x, i: (x[i], x[:, i], x[i, i], x[i[:, None], i], x[:, i, i], x[i, :, i]), X,
              INDEX),
    "sort": (lambda x: (*x.sort(-1), *x.sort(1, descending=True), x.argsort(0)), X),
    "one_hot": (lambda i: F.one_hot(i, 11), INTS + 5),
    "scatter": (lambda x, i: (x.scatter(1, i, 2.0), x.scatter(1, i, x), x.scatter_add(1, i, x)), X,
                torch.tensor([[[1] * 6], [[0] * 6], [[3] * 6]])),
    "scatter_reduce": (lambda x, i: [x.scatter_reduce(1, i, x[:, :3], n) for n in REDUCED], X,
                       torch.tensor([[[1, 1, 0] * 2] * 3, [[0] * 6] * 3, [[3] * 6] * 3])),
    "index_reduce": (lambda x, y, i: [x.index_reduce(1, i, y, n) for n in REDUCED[1:]], X, Y,
                     INDEX),
    "fake_quantize": (
        lambda x, s, z: (
            torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 15),
            torch.fake_quantize_per_tensor_affine(x, s.detach()[0], z[0], -8, 7),
            torch.fake_quantize_per_channel_affine(x, s.detach(), z, 0, -8, 7),
        ),
        X, torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 3, -2], dtype=torch.int32),
    ),
    "view_dtype": (lambda x, i: (x.view(torch.int32), i.view(torch.float64)), X, INTS + 5),
    "index_add": (lambda x, y, i: (x.index_add(1, i, y), x.index_fill(1, i[:2], 3.0)), X, Y, INDEX),
    "index_copy": (lambda x, y, i: x.index_copy(0, i, y), X, Y, torch.tensor([2, 0, 1])),
    "index_put": (lambda x, i: x.clone().index_put_((i,), torch.tensor(1.0)), X, INDEX),
    "index_put_add": (lambda x, i, y: x.index_put((i, i), y, accumulate=True), X, INDEX, X[0]),
    "mask_assign": (lambda x: _assigned(x), X),
    "conv1d": (lambda x, w: F.conv1d(x, w, padding=1), X, torch.randn(5, 4, 3)),
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1, dilation=2, groups=2), IMAGE,
               torch.randn(6, 2, 3, 3), torch.randn(6)),
    "conv2d_same": (lambda x, w: F.conv2d(x, w, padding="same"), IMAGE, torch.randn(6, 4, 3, 2)),
    "conv2d_unbatched": (lambda x, w: F.conv2d(x[0], w), IMAGE, torch.randn(6, 4, 3, 3)),
    "conv_transpose2d": (lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1,
                                                         output_padding=1), IMAGE,
                         torch.randn(4, 3, 3, 3)),
    "max_pool": (lambda x: F.max_pool2d(x, 3, 2, 1), IMAGE),
    "avg_pool": (lambda x: (F.avg_pool2d(x, 2), F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
                            F.avg_pool2d(x, 2, divisor_override=3)), IMAGE),
    "adaptive_pool": (lambda x: (F.adaptive_avg_pool2d(x, 1), F.adaptive_max_pool2d(x, 1)), IMAGE),
    "creation": (lambda x: (torch.zeros_like(x) + torch.ones(6) + torch.full((6,), 2.0)
                            + torch.arange(6) + x.new_ones(6) + torch.eye(6)[0]
                            + torch.linspace(0, 1, 6) + torch.arange(0, 3, 0.5)), X),
    "arange_of_size": (lambda x: torch.arange(x.shape[0]) + torch.arange(1, x.shape[0] + 1), X),
    "meshgrid": (lambda a, b: [g * 2 for way in ("ij", "xy")
                               for g in torch.meshgrid(a, b, indexing=way)], A[:, 0], B[0]),
    "scale_by_size": (lambda x: x / x.shape[-1] ** 0.5 + x.shape[0] * x.shape[1], X),
    "attention": (lambda x, y: F.scaled_dot_product_attention(x, y, y, is_causal=True), X[None],
                  Y[None]),
    "attention_mask": (lambda x, y: F.scaled_dot_product_attention(x, y, y, x[..., :4] > 0), X, Y),
    "detach": (lambda x: x * x.detach(), GRAD),
}  # fmt: skip


def _assigned(x):
    x = x.clone()
    x[x > 0] = 0.5
    x[:, 1] = 7.0
    x[..., 2:4] += x[..., :2]
    x[1, 0, 0] = -1
    return x
