"""A call with gradients for each ATen op that has a rule but no entry in test_translate.py's table.

name -> arguments; tensors of floats require a gradient. test_gradients.py runs them.
"""

import torch

from ortmodule.translate.registry import RULES

torch.manual_seed(4)
X = torch.randn(3, 4, 6)
S = torch.randn(4, 4)
V = torch.randn(4)
W = torch.randn(3, 4)
P = torch.rand(3, 4) + 0.1
IMAGE = torch.randn(2, 4, 6, 6)
LINE = torch.randn(2, 4, 6)
VOLUME = torch.randn(1, 2, 4, 4, 4)
GRID, GRID3 = torch.rand(2, 3, 5, 2) * 3 - 1.5, torch.rand(1, 2, 3, 2, 3) * 3 - 1.5
SPACES = {1: LINE, 2: IMAGE, 3: VOLUME}
NEAREST = ("upsample_nearest", "_upsample_nearest_exact")
WEIGHTED = (
    ("upsample_linear", 1), ("upsample_bilinear", 2), ("upsample_bicubic", 2),
    ("upsample_trilinear", 3),
)  # fmt: skip
INTS = torch.randint(0, 4, (3, 4))
AT = torch.tensor([2, 0])
MASK = torch.tensor([[True, False, True, False]] * 3)
F32 = {"dtype": torch.float32}

CALLS = {
    **{f"__{n}__.{k}": (INTS, 3 if k == "Scalar" else INTS + 1) for n in ("and", "or", "xor")
       for k in ("Scalar", "Tensor")},
    **{f"bitwise_{n}.Scalar": (INTS, 3) for n in ("and", "or", "xor")},
    **{f"_cast_{n}.default": (W,) for n in
       ("Double", "Float", "Half", "Int", "Long")},
    **{f"adaptive_{k}_pool3d.default": (VOLUME, [2, 2, 2]) for k in ("avg", "max")},
    **{f"_adaptive_avg_pool{n}d.default": (x, [2] * n) for n, x in ((2, IMAGE), (3, VOLUME))},
    "_weight_norm_interface.default": (W, P[:, :1]),
    "avg_pool3d.default": (VOLUME, [2, 2, 2]), "avg_pool1d.default": (LINE, [2]),
    "as_strided.default": (X, [2, 3], [5, 1]), "as_strided_copy.default": (X, [2, 3, 2], [3, 1, 1]),
    "as_strided_scatter.default": (X, V, [4], [9]),
    "adaptive_avg_pool1d.default": (LINE, [3]), "adaptive_max_pool1d.default": (LINE, [3]),
    "max_pool1d.default": (LINE, [2]),
    **{f"max_pool{n}d.default": (x, [2] * n) for n, x in ((3, VOLUME),)},
    **{f"max_pool{n}d_with_indices.default": (x, [2] * n) for n, x in
       ((1, LINE), (2, IMAGE), (3, VOLUME))},
    **{f"{m}_pad{n}d.default": (x, [1, 2] * n) for m in ("reflection", "replication")
       for n, x in ((1, LINE), (2, IMAGE), (3, VOLUME))},
    **{f"{m}{n}d.vec": (x, None, [2.0] * n) for m in NEAREST for n, x in SPACES.items()},
    **{f"{m}{n}d.default": (x, [8] * n) for m in NEAREST for n, x in SPACES.items()},
    **{f"{m}{n}d.vec": (SPACES[n], None, False, [1.5] * n) for m, n in WEIGHTED},
    **{f"{m}{n}d.default": (SPACES[n], [9] * n, True) for m, n in WEIGHTED},
    **{f"_upsample_{m}2d_aa.vec": (IMAGE, [3, 9], False, None) for m in ("bilinear", "bicubic")},
    **{f"_upsample_{m}2d_aa.default": (IMAGE, [3, 9], False) for m in ("bilinear", "bicubic")},
    "grid_sampler.default": (IMAGE, GRID, 0, 0, False),
    "grid_sampler_2d.default": (IMAGE, GRID, 2, 2, True),
    "grid_sampler_3d.default": (VOLUME, GRID3, 0, 1, False),
    "_linalg_det.default": (S,),
    "im2col.default": (IMAGE, [2, 3], [1, 1], [1, 0], [2, 1]),
    "col2im.default": (torch.randn(2, 12, 9), [4, 5], [2, 3], [1, 1], [1, 0], [2, 1]),
    **{f"{n}.default": (X,) for n in (
        "alias", "clip", "conj", "contiguous", "detach_copy", "lift", "ravel",
        "real", "resolve_conj", "resolve_neg", "squeeze", "all", "any", "std", "var", "ones_like",
        "empty_like", "zero", "fix", "expm1", "sgn")},
    **{f"{n}.Scalar": (W, 2.0) for n in ("add", "sub", "mul", "div", "not_equal", "fill", "norm")},
    **{f"{n}.Tensor": (W, P) for n in (
        "divide", "true_divide", "not_equal", "clamp_max", "clamp_min", "clip")},
    **{f"{n}.other": (W, P) for n in ("max", "min")},
    **{f"_{n}.default": (W, 1, False) for n in ("softmax", "log_softmax")},
    "clip.default": (W, -0.5, 0.5), "fill.Tensor": (W, torch.tensor(2.0)),
    "clamp_max.default": (W, 0.3), "clamp_min.default": (W, 0.3),
    "_index_put_impl.default": (W.clone(), [AT], torch.randn(2, 4)),
    "_to_copy.default": (W, F32), "to.dtype_layout": (W, F32), "to.other": (W, P),
    "to.device": (W, "cpu", torch.float32), "type_as.default": (W, P),
    "_unsafe_index.Tensor": (W, [AT]), "_unsafe_view.default": (W, [4, 3]),
    "_reshape_alias.default": (W, [4, 3], [3, 1]),
    "addbmm.default": (S, torch.randn(3, 4, 6), torch.randn(3, 6, 4)),
    "addmv.default": (V[:3], W, V), "addr.default": (W, V[:3], V), "ger.default": (V, V[:3]),
    "mv.default": (W, V), "dot.default": (V, V * 2),
    "log1p.default": (P,),
    **{f"{n}.default": (S,) for n in ("adjoint", "mH", "matrix_H", "linalg_diagonal")},
    **{f"swap{n}.default": (X, 0, 1) for n in ("axes", "dims")},
    **{f"{n}split.int": (X, k) for n, k in (("h", 2), ("v", 3), ("d", 3))},
    **{f"{n}split.array": (X, [1, 2]) for n in "hvd"},
    "moveaxis.intlist": (X, [0], [1]), "tensor_split.indices": (X, [1, 2], 1),
    **{f"_is_{n}_true.default": (MASK,) for n in ("all", "any")},
    "topk.default": (X, 2), "rsub.Tensor": (W, P), "zeros.default": ([2, 3],),
    "all.dim": (W > 0, 1), "argsort.stable": (W, {"stable": True, "dim": 1}),
    "all.dims": (W > 0, [0, 1]), "any.dims": (W > 0, [0, 1]),
    "alpha_dropout.default": (W, 0.5, False), "feature_alpha_dropout.default": (IMAGE, 0.5, False),
    "dropout.default": (W, 0.5, False), "feature_dropout.default": (IMAGE, 0.5, False),
    "native_dropout.default": (W, 0.5, False),
    "bernoulli.p": (W, 1), "bitwise_not.default": (INTS,),
    "broadcast_to.default": (V, [3, 4]), "concat.default": ([W, P], 1),
    "constant_pad_nd.default": (W, [1, 2], 0.5),
    "batch_norm.default": (IMAGE, V.exp(), V, None, None, True, 0.1, 1e-5, True),
    "native_batch_norm.default": (IMAGE, V.exp(), V, None, None, True, 0.1, 1e-5),
    "erfc.default": (W,), "log10.default": (P,), "logaddexp.default": (W, P),
    "conv1d.padding": (LINE, torch.randn(3, 4, 3), None, [1], "same"),
    "conv3d.padding": (VOLUME, torch.randn(3, 2, 2, 2, 2), None, [1, 1, 1], "same"),
    "conv3d.default": (VOLUME, torch.randn(3, 2, 2, 2, 2)),
    "conv_transpose1d.default": (LINE, torch.randn(4, 3, 3)),
    "conv_transpose3d.input": (VOLUME, torch.randn(2, 3, 2, 2, 2)),
    "convolution.default": (IMAGE, torch.randn(3, 4, 3, 3), None, [1, 1], [1, 1], [1, 1], False,
                            [0, 0], 1),
    "count_nonzero.dim_IntList": (W, [1]),
    "div.Scalar_mode": (W, 0.3, {"rounding_mode": "floor"}),
    "floor_divide.Scalar": (INTS, 3), "eye.m": (3, 4), "empty.memory_format": ([0, 3],),
    "empty_permuted.default": ([0, 3], [0, 1]), "empty_strided.default": ([0, 3], [3, 1]),
    "new_empty.default": (W, [0, 3]), "new_empty_strided.default": (W, [0, 3], [3, 1]),
    "new_full.default": (W, [2], 3.0), "new_zeros.default": (W, [2]),
    "full_like.default": (W, 2.5), "scalar_tensor.default": (2.5,),
    "index_fill.int_Tensor": (W, 1, AT, torch.tensor(2.0)),
    "lerp.Tensor": (W, P, P * 0.5), "masked_fill.Tensor": (W, MASK, torch.tensor(2.0)),
    "mT.default": (W,), "numpy_T.default": (W,), "movedim.intlist": (X, [0, 1], [1, 2]),
    "moveaxis.int": (X, 0, 2), "meshgrid.default": ([V, V * 2],),
    "native_layer_norm.default": (X, [6], None, None, 1e-5),
    "nll_loss.default": (W, torch.tensor([1, 0, 3])),
    "nll_loss2d.default": (IMAGE, torch.randint(0, 4, (2, 6, 6))),
    "norm.ScalarOpt_dim": (W, 2, [1]), "reshape_as.default": (W, S[:3]),
    "view_as.default": (W, S[:3]), "view_copy.default": (W, [4, 3]),
    "scatter.reduce": (W, 1, INTS[:, :1], P[:, :1], {"reduce": "add"}),
    "scatter.value_reduce": (W, 1, INTS[:, :1], 2.0, {"reduce": "add"}),
    "select_scatter.default": (W, V, 0, 1), "slice_scatter.default": (W, P[1:], 0, 1),
    "sort.stable": (X, {"stable": True, "dim": -1}), "split.sizes": (W, [1, 2], 0),
    "squeeze.dims": (X[:1], [0]), "tensor_split.sections": (X, 2, 1),
    "where.Scalar": (MASK, 1.0, 2.0), "where.ScalarSelf": (MASK, 1.0, W),
}  # fmt: skip
# Rules of ops that only a capture of a module makes, which pairs of modules compare.
OF_MODULES = {
    "ortmodule.lstm.default", "ortmodule.gru.default", "ortmodule.rnn_relu.default",
    "ortmodule.rnn_tanh.default", "ortmodule.lstm_cell.default", "ortmodule.gru_cell.default",
    "ortmodule.scaled_dot_product_attention.default",
    "ortmodule_lora.linear.default",
}  # fmt: skip
# Rules of ops whose sizes depend on data, and of what is asserted of these:
# test_data_dependent_sizes.py.
OF_LATE_SIZES = {
    "_assert_async.default", "_assert_async.msg", "_functional_assert_async.msg",
    "_unique.default", "_unique2.default", "argwhere.default", "masked_select.default",
    "nonzero.default", "nonzero_numpy.default", "repeat_interleave.Tensor",
    "repeat_interleave.self_Tensor", "unique_consecutive.default", "unique_dim.default",
    "where.default",
}  # fmt: skip
# Rules of collectives, which need groups: tests/providers and tests/distributed have them.
OF_GROUPS = {name for name in RULES if name.startswith(("c10d", "_c10d", "ortmodule_collective"))}
# Without a graph that could have gradients: refused, or random.
WITHOUT = {
    "embedding_renorm.default": "always refused",
    "bernoulli.float": "in place only", "fill_diagonal.default": "in place only",
    "lift_fresh.default": "of constants", "_shape_as_tensor.default": "read by size-less tracing",
}  # fmt: skip
