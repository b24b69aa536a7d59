"""AdamW: torch.optim.AdamW's options and state, with a step that is one pass in C++."""

import torch

from .adam import Adam


class AdamW(Adam, torch.optim.AdamW):
    """Decoupled weight decay: p -= lr * (wd * p + m / (sqrt(v) + eps)), m and v bias-corrected.

    Options, state_dict, param_groups and hooks are torch.optim.AdamW's, so either loads the other's
    state. Dtypes, errors and options around a step: see Fused. Source: Loshchilov and Hutter, 2019,
    algorithm 2.
    """
