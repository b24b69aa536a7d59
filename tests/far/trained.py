"""Models with some steps of training from the same start, on providers as named."""

import torch
import zoo

from ortmodule import Options, ORTModule

STEPS = 5
MODELS = zoo.MODELS | {"resnet14": zoo.resnet14}
# Batch norm over a few numbers: a larger step, or another start, turns roundings into losses.
RATES = {"resnet50": 1e-4, "resnet14": 1e-4}
START = dict.fromkeys(RATES, {"zero_init_residual": True})


def build(name, dropout):
    """A model of the zoo and its batch, always the same."""
    torch.manual_seed(0)
    module, batch = MODELS[name](dropout=dropout, batch=2, **START.get(name, {}))
    return module.train(), batch


def losses(name, model, batch, steps=STEPS):
    """Of plain gradient descent."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATES.get(name, 0.05))
    result = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = zoo.loss_of(model(**batch))
        loss.backward()
        optimizer.step()
        result.append(loss.item())
    return result


class Trained:
    """A model that can be trained again and again from the same start."""

    def __init__(self, name, *providers, **options):
        self.name = name
        module, self.batch = build(name, dropout=0.1)
        self.model = ORTModule(module, Options("error", providers, **options))
        self.start = {k: v.clone() for k, v in self.model.state_dict().items()}

    def losses(self, steps=STEPS):
        """The losses of its next steps."""
        self.model.load_state_dict(self.start)
        torch.manual_seed(1)
        return losses(self.name, self.model, self.batch, steps)
