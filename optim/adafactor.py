"""Adafactor: torch's own step, under this folder's name."""

import torch


class Adafactor(torch.optim.Adafactor):
    """p -= alpha * u / max(1, rms(u) / d), u = g / sqrt(r c / mean(r)), alpha = max(eps2, rms(p)) *
    min(lr, 1 / sqrt(step)).

    r and c are means of g's squares over columns and rows; a vector keeps all its squares. This is
    torch.optim.Adafactor, step included: no kernel of ours yet, so no speed is gained, and dtypes,
    options, state and errors are torch's. Source: Shazeer and Stern, 2018, algorithms 4 and 5.
    """
