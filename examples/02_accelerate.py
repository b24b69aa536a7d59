"""accelerate with mixed_precision="bf16": the same loop in eager PyTorch and through ORTModule."""

import sys

import report
import topics
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

from ortmodule import ORTModule

STEPS, BATCH = 12, 16


def train(ours: bool) -> tuple[list[float], torch.nn.Module]:
    """The losses of STEPS steps, and the model that was called."""
    model = topics.small_model()
    if ours:
        model = ORTModule(model)  # the one line
    accelerator = Accelerator(mixed_precision="bf16", cpu=True)
    columns = topics.split()[0]
    data = TensorDataset(*(columns[k][: STEPS * BATCH] for k in columns))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, BATCH))
    model.train()
    losses = []
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**dict(zip(columns, batch, strict=True))).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    return losses, accelerator.unwrap_model(model)


def main() -> int:
    eager, _ = train(ours=False)
    losses, model = train(ours=True)
    return report.compare(eager, losses, model.explain())


if __name__ == "__main__":
    sys.exit(main())
