"""The workloads of compare.py: each makes a module and a function that runs forward to the loss.

Called by compare.py, in its process and in fresh ones. Weights are random: only time is measured.
"""

import torch
from torch import nn
from torch.nn import functional


def bert(batch: int = 8, length: int = 128):
    """BertForSequenceClassification, base config, dropout 0.1; labels in, loss out."""
    from transformers import BertConfig, BertForSequenceClassification

    module = BertForSequenceClassification(BertConfig())
    inputs = {
        "input_ids": torch.randint(0, module.config.vocab_size, (batch, length)),
        "attention_mask": torch.ones(batch, length, dtype=torch.long),
        "labels": torch.randint(0, 2, (batch,)),
    }
    return module, lambda model: model(**inputs).loss


def mlp(batch: int = 32):
    """MLP 64-128-128-10, GELU and one layer norm; cross entropy outside of the module."""
    module = nn.Sequential(
        nn.Linear(64, 128),
        nn.GELU(),
        nn.LayerNorm(128),
        nn.Linear(128, 128),
        nn.GELU(),
        nn.Linear(128, 10),
    )
    x, y = torch.randn(batch, 64), torch.randint(0, 10, (batch,))
    return module, lambda model: functional.cross_entropy(model(x), y)


MODELS = {"bert": bert, "mlp": mlp}
