"""Muon: torch's own step, under this folder's name."""

import torch


class Muon(torch.optim.Muon):
    """p -= lr * (wd * p + s * o), o = Newton-Schulz of g + mu * (b - g), b = mu * b + (1 - mu) * g.

    s is a factor of the shape. This is torch.optim.Muon, step included: its time is that of matrix
    products in bfloat16, which are torch's, and float32 takes longer where the CPU has bfloat16. So
    no speed is gained; parameters are matrices, options, state and errors torch's. Source: Jordan
    et al., 2024, "Muon: An optimizer for hidden layers in neural networks".
    """
