"""timm's and torchvision's training loops: mixup, EMA, warm-up, a detector: as in eager."""

import numpy as np
import pytest
import timm
import torch
import torchmetrics
from timm.data import Mixup
from timm.loss import LabelSmoothingCrossEntropy, SoftTargetCrossEntropy
from timm.models.resnet import BasicBlock, ResNet
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import ModelEmaV2, ModelEmaV3, dispatch_clip_grad
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR
from torch.utils.data import DataLoader
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.rpn import AnchorGenerator
from torchvision.ops import MultiScaleRoIAlign
from twins import CLASSES, images, trained_alike

# Of networks with batch norm, where few pixels make rounding larger.
NEAR = 1e-3


def vit() -> nn.Module:
    torch.manual_seed(0)
    return timm.create_model(
        "vit_tiny_patch16_224", img_size=16, patch_size=8, depth=1, embed_dim=24, num_heads=2,
        num_classes=CLASSES,
    )  # fmt: skip


def resnet() -> nn.Module:
    torch.manual_seed(0)
    return ResNet(
        BasicBlock, [1, 1, 0, 0], channels=(8, 16, 16, 16), stem_width=8, stem_type="",
        num_classes=CLASSES, zero_init_last=True,
    )  # fmt: skip


@pytest.mark.parametrize("ema_of", [ModelEmaV2, ModelEmaV3])
@pytest.mark.parametrize("make", [vit, resnet])
def test_timms_loop(make, ema_of):
    """Mixup and cutmix with soft targets, its optimizers, schedule, clipping and average."""

    def train(wrap):
        np.random.seed(0)
        model = wrap(make())
        mixup = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=CLASSES)
        optimizer = create_optimizer_v2(model, opt="sgd", lr=0.05, weight_decay=0.01)
        schedule = CosineLRScheduler(optimizer, t_initial=4, warmup_t=2, warmup_lr_init=0.01)
        ema, loss_of, losses = ema_of(model, decay=0.9), SoftTargetCrossEntropy(), []
        for step, (x, label) in enumerate(DataLoader(images(16), 4)):
            loss = loss_of(*(lambda x, y: (model(x), y))(*mixup(x.clone(), label)))
            optimizer.zero_grad()
            loss.backward()
            dispatch_clip_grad(model.parameters(), 1.0, mode="norm")
            optimizer.step()
            ema.update(model)
            schedule.step(step + 1)
            losses.append(loss.detach())
        model.eval()
        with torch.no_grad():
            found = torch.cat([model(x).flatten(), ema.module(x).flatten()])
        losses.append(LabelSmoothingCrossEntropy(0.1)(model(x), label).detach())
        return torch.cat([torch.stack(losses), found]), nn.ModuleList([model, ema.module])

    trained_alike(train, rtol=1e-4 if make is vit else NEAR)


def test_torchvisions_loop():
    """Its reference's: momentum, label smoothing, warm-up and cosine, metrics of torchmetrics."""

    def train(wrap):
        model = wrap(resnet())
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
        warm = LinearLR(optimizer, start_factor=0.1, total_iters=2)
        schedule = SequentialLR(optimizer, [warm, CosineAnnealingLR(optimizer, T_max=4)], [2])
        accuracy = torchmetrics.Accuracy("multiclass", num_classes=CLASSES)
        mean, loss_of, losses = (
            torchmetrics.MeanMetric(),
            nn.CrossEntropyLoss(label_smoothing=0.1),
            [],
        )
        for _ in range(2):
            model.train()
            for x, label in DataLoader(images(12), 4):
                output = model(x)
                loss = loss_of(output, label)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                accuracy.update(output, label)
                mean.update(loss)
                losses.append(loss.detach())
            schedule.step()
            model.eval()
            with torch.inference_mode():
                losses.append(loss_of(model(x), label).clone())
        return torch.stack([*losses, accuracy.compute(), mean.compute()]), model

    trained_alike(train, rtol=NEAR)


def detector() -> nn.Module:
    torch.manual_seed(0)
    backbone = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU()
    )
    backbone.out_channels = 8
    return FasterRCNN(
        backbone,
        num_classes=CLASSES,
        rpn_anchor_generator=AnchorGenerator(((8, 16),), ((1.0,),)),
        box_roi_pool=MultiScaleRoIAlign(["0"], 3, 2),
        min_size=32, max_size=32, rpn_pre_nms_top_n_train=16, rpn_post_nms_top_n_train=8,
        box_batch_size_per_image=8,
    )  # fmt: skip


@pytest.mark.slow
def test_a_detectors_losses():
    """They come in a dict, from lists of images and targets; it samples with torch's own draws."""

    def train(wrap):
        model = wrap(detector())
        optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)
        targets = [
            {"boxes": torch.tensor([[2.0, 3, 14, 20]]), "labels": torch.tensor([1])},
            {
                "boxes": torch.tensor([[8.0, 8, 30, 28], [0, 0, 9, 9]]),
                "labels": torch.tensor([2, 1]),
            },
        ]
        losses = []
        for x, _ in DataLoader(images(6, size=32), 2):
            found = model(list(x.sigmoid()), targets)
            assert list(found) == [
                "loss_classifier", "loss_box_reg", "loss_objectness", "loss_rpn_box_reg",
            ]  # fmt: skip
            loss = sum(found.values())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses += [value.detach() for value in found.values()]
        return torch.stack(losses), model

    trained_alike(train, rtol=NEAR, whole=False)
