"""A plain loop in float16 with GradScaler: the same in eager PyTorch and through ORTModule."""

import sys

import report
import topics
import torch

from ortmodule import ORTModule

STEPS, BATCH, OVERFLOW = 12, 16, 5


def train(ours: bool) -> tuple[list[float], list[float], torch.nn.Module]:
    """Losses and scales of STEPS steps, one of which overflows, and the model."""
    model = topics.small_model()
    if ours:
        model = ORTModule(model)  # the one line
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=4)
    losses, scales = [], []
    for batch, _ in zip(topics.batches(topics.split()[0], BATCH), range(STEPS), strict=False):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = model(**batch).loss
        scaler.scale(loss * 1e30 if len(losses) == OVERFLOW else loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
        scales.append(scaler.get_scale())
    return losses, scales, model


def main() -> int:
    eager, eager_scales, _ = train(ours=False)
    losses, scales, model = train(ours=True)
    print("scales:", *map(int, scales))
    failed = report.compare(eager, losses, model.explain())
    return failed or ("the scales differ" if scales != eager_scales else 0)


if __name__ == "__main__":
    sys.exit(main())
