"""timm: a vision transformer with mixup, cosine schedule and an average of its weights, in eager
PyTorch and through ORTModule."""

import sys

import numpy as np
import report
import timm
import torch
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.scheduler import CosineLRScheduler
from timm.utils import ModelEmaV3, dispatch_clip_grad

from ortmodule import ORTModule

STEPS, BATCH, SIZE, CLASSES = 12, 16, 32, 4


def images() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of noise in which one quarter, the class, is brighter."""
    draw = torch.Generator().manual_seed(0)
    batches = []
    for _ in range(STEPS):
        x = torch.randn(BATCH, 3, SIZE, SIZE, generator=draw)
        label = torch.randint(CLASSES, (BATCH,), generator=draw)
        half = SIZE // 2
        for image, k in zip(x, label.tolist(), strict=True):
            image[:, k // 2 * half :, k % 2 * half :][:, :half, :half] += 1
        batches.append((x, label))
    return batches


def train(ours: bool) -> tuple[list[float], torch.nn.Module]:
    """The losses of STEPS steps and of the average, and the model."""
    torch.manual_seed(0)
    np.random.seed(0)
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=SIZE, patch_size=8, depth=2, num_classes=CLASSES
    )
    if ours:
        model = ORTModule(model)  # the one line
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = CosineLRScheduler(optimizer, t_initial=STEPS, warmup_t=2, warmup_lr_init=1e-4)
    mixup = Mixup(mixup_alpha=0.4, cutmix_alpha=1.0, num_classes=CLASSES)
    ema, loss_of, losses = ModelEmaV3(model, decay=0.8), SoftTargetCrossEntropy(), []
    for step, (x, label) in enumerate(images()):
        x, target = mixup(x, label)
        loss = loss_of(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        dispatch_clip_grad(model.parameters(), 1.0)
        optimizer.step()
        ema.update(model)
        schedule.step(step + 1)
        losses.append(loss.item())
    with torch.no_grad():
        losses.append(loss_of(ema(x), target).item())
    return losses, model


def main() -> int:
    eager, _ = train(ours=False)
    losses, model = train(ours=True)
    return report.compare(eager, losses, model.explain())


if __name__ == "__main__":
    sys.exit(main())
