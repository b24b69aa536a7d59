"""Losses over class indices, and the binary one."""

import numpy as np
import torch
import torch.nn.functional as F

from ..table import Op, bad, i, sample, t

IGNORED = np.array([2, -100, 0, 4])


def cross_entropy(
    logits, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0
):
    loss = F.cross_entropy(
        logits,
        target.long(),
        weight,
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )
    axis = 0 if logits.dim() == 1 else 1
    top = logits.amax(axis, keepdim=True)
    return loss, torch.stack([top.squeeze(axis), (logits - top).exp().sum(axis)], -1)


def cross_entropy_grad(dloss, logits, target, parts, weight=None, **attrs):
    logits = logits.detach().requires_grad_()
    loss, _ = cross_entropy(logits, target, weight, **attrs)
    return torch.autograd.grad(loss, logits, dloss)[0]


def backward(logits, target, weight=None, **attrs):
    axis = 0 if logits.ndim == 1 else 1
    dloss = t(*target.shape) if attrs.get("reduction") == "none" else t()
    top = logits.max(axis, keepdims=True)
    parts = np.stack([top.squeeze(axis), np.exp(logits - top).sum(axis)], -1)
    return sample(dloss, logits, target, parts, weight, **attrs)


def nll(x, target, weight=None, ignore_index=-100, reduction="mean"):
    return F.nll_loss(x, target.long(), weight, ignore_index=ignore_index, reduction=reduction)


def softmax_cross_entropy(scores, target, weight=None, **attrs):
    x = torch.log_softmax(scores, 1)
    return nll(x, target, weight, **attrs), x


LOSSES = [
    ((t(4, 5), i(4, high=5)), {}),
    ((t(4, 5), i(4, high=5, dtype="int32"), t(5, low=0.1, high=2.0)), {"reduction": "sum"}),
    ((t(4, 5), IGNORED, t(5, low=0.1, high=2.0)), {"ignore_index": -100}),
    ((t(4, 5), IGNORED), {"ignore_index": -100, "reduction": "none"}),
    ((t(2, 5, 3), i(2, 3, high=5)), {"ignore_index": 2}),
]
CASES = [
    ((t(4, 5), i(4, high=5)), {}),
    ((t(4, 5), i(4, high=5, dtype="int32")), {"reduction": "sum"}),
    ((t(4, 5), IGNORED), {"reduction": "none"}),
    ((t(4, 5), IGNORED), {}),
    ((t(4, 5), IGNORED, t(5, low=0.1, high=2.0)), {}),
    ((t(4, 5), IGNORED, t(5, low=0.1, high=2.0)), {"label_smoothing": 0.2}),
    ((t(4, 5), IGNORED), {"label_smoothing": 0.2}),
    ((t(4, 5), IGNORED), {"label_smoothing": 0.3, "reduction": "sum"}),
    ((t(2, 5, 3), i(2, 3, high=5)), {"ignore_index": 1}),
    ((t(2, 5, 3, 2), i(2, 3, 2, high=5), t(5, low=0.1, high=2.0)), {"reduction": "none"}),
    ((t(5), i(high=5)), {}),
]

OPS = [
    *[
        Op(
            name,
            f,
            [sample(*inputs, **attrs) for inputs, attrs in LOSSES],
            [
                bad("is out of range for size 5", t(2, 5), np.array([1, 5])),
                bad("reduction is 'half'", t(2, 5), i(2), reduction="half"),
            ],
            wrt=(0,),
        )
        for name, f in (
            ("NegativeLogLikelihoodLoss", nll),
            ("SoftmaxCrossEntropyLoss", softmax_cross_entropy),
        )
    ],
    Op(
        "ort::CrossEntropy",
        cross_entropy,
        [sample(*inputs, **attrs) for inputs, attrs in CASES]
        + [sample(t(4, 5) * 100, i(4, high=5))]
        + [sample(t(2, 5), np.array([-100, -100]), gradient=False)],
        [
            bad("target 5 is out of range for 5 classes", t(2, 5), np.array([1, 5])),
            bad("target -1 is out of range for 5 classes", t(2, 5), np.array([1, -1])),
            bad("weight has shape [4], expected [5]", t(2, 5), i(2), t(4)),
            bad("reduction is 'half', expected none, sum or mean", t(2, 5), i(2), reduction="half"),
            bad("logits have shape [2, 5], target has shape [2, 5]", t(2, 5), i(2, 5)),
        ],
        through=(0,),
        wrt=(0,),
    ),
    Op(
        "ort::BinaryCrossEntropy",
        lambda x, target: F.binary_cross_entropy(x, target.expand_as(x), reduction="none"),
        [
            sample(t(3, 5, low=0.1, high=0.9), t(3, 5, low=0.0, high=1.0)),
            sample(t(2, 1, 7, low=0.1, high=0.9), t(7, low=0.0, high=1.0)),
            sample(np.array([0.0, 1.0, 1.0, 0.0]), np.array([0.0, 1.0, 0.0, 1.0]), gradient=False),
            sample(t(0, 2), t(0, 2)),
        ],
        [bad("do not broadcast", t(3), t(4))],
    ),
    Op(
        "ort::CrossEntropyGrad",
        cross_entropy_grad,
        [backward(*inputs, **attrs) for inputs, attrs in CASES],
        no_gradient="only in a backward",
    ),
]
