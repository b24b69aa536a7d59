"""Activations."""

import numpy as np
import torch
import torch.nn.functional as F

from ..table import Op, i, sample, special, t

KINKS = np.array([0.0, -0.0, 1.0, -1.0])


def samples(*extra, special_values=True, **attrs):
    made = [sample(t(3, 5), **attrs), sample(t(2, 1, 7) * 3, **attrs), sample(t(0, 2), **attrs)]
    if special_values:
        made.append(sample(special(), gradient=False, **attrs))
    return [*made, *extra]


def gelu(x, approximate="none"):
    return F.gelu(x, approximate=approximate)


def swish(x, alpha=1.0):
    return x * torch.sigmoid(alpha * x)


def gelu_derivative(x, approximate="none"):
    return torch.ops.aten.gelu_backward(torch.ones_like(x), x, approximate=approximate)


def swish_derivative(x, alpha=1.0):
    s = torch.sigmoid(alpha * x)
    return s * (1 + alpha * x * (1 - s))


def shrink(x, bias=0.0, lambd=0.5):
    low = torch.where(x < -lambd, x + bias, torch.zeros_like(x))
    return torch.where(x > lambd, x - bias, low)


def hard_sigmoid(x, alpha=0.2, beta=0.5):
    return torch.clamp(alpha * x + beta, 0, 1)


def prelu(x, slope):
    return torch.where(x > 0, x, slope * x)


def selu(x, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875):
    return gamma * torch.where(x > 0, x, alpha * (torch.exp(torch.clamp(x, max=0.0)) - 1))


OPS = [
    Op("Tanh", torch.tanh, samples()),
    Op("Sigmoid", torch.sigmoid, samples(sample(np.array([-800.0, 800.0])))),
    Op("Softplus", F.softplus, samples(sample(np.array([-60.0, 60.0])))),
    Op("Softsign", F.softsign, samples(special_values=False)),
    Op(
        "Gelu",
        gelu,
        samples(*samples(approximate="tanh", special_values=False), special_values=False),
    ),
    Op("Swish", swish, samples(*samples(alpha=0.7, special_values=False), special_values=False)),
    Op("ort::GeluDerivative", gelu_derivative, samples(*samples(approximate="tanh"))),
    Op("ort::SwishDerivative", swish_derivative, samples(*samples(alpha=0.7))),
    Op("Mish", F.mish, samples(special_values=False)),
    Op(
        "Relu",
        torch.relu,
        samples(sample(KINKS, smooth=False), sample(i(5, low=-3, dtype="int32"))),
    ),
    Op(
        "LeakyRelu",
        lambda x, alpha=0.01: F.leaky_relu(x, alpha),
        samples(sample(KINKS, smooth=False), sample(t(5), alpha=0.3)),
    ),
    Op("PRelu", prelu, [sample(t(3, 5), t(5)), sample(t(2, 3, 4), t(3, 1)), sample(t(4), t(1))]),
    Op(
        "ThresholdedRelu",
        lambda x, alpha=1.0: torch.where(x > alpha, x, torch.zeros_like(x)),
        samples(*samples(alpha=0.3)),
    ),
    Op("Shrink", shrink, samples(*samples(bias=0.2, lambd=0.7))),
    Op("HardSigmoid", hard_sigmoid, samples(*samples(alpha=0.4, beta=0.3))),
    Op("HardSwish", F.hardswish, samples(sample(3 * KINKS, smooth=False), special_values=False)),
    Op(
        "ort::HardTanh",
        lambda x, low=-1.0, high=1.0: F.hardtanh(x, low, high),
        samples(sample(KINKS, smooth=False), *samples(low=-0.3, high=2.0)),
    ),
    Op(
        "Elu",
        lambda x, alpha=1.0: F.elu(x, alpha),
        samples(sample(KINKS, smooth=False), sample(t(9), alpha=0.4)),
    ),
    Op(
        "Celu",
        # torch.celu itself rounds 1 / alpha to float32
        lambda x, alpha=1.0: torch.where(x > 0, x, alpha * torch.expm1(x.clamp(max=0) / alpha)),
        samples(sample(KINKS, smooth=False), sample(t(9), alpha=0.4)),
    ),
    Op("Selu", selu, samples(sample(KINKS, smooth=False), sample(t(9), alpha=1.4, gamma=1.1))),
]
