"""torchvision's models on a folder of images: momentum, meters, a validation, a checkpoint."""

import argparse
import os

import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR
from torchvision import datasets, models, transforms


class AverageMeter:
    def __init__(self):
        self.sum = self.count = 0

    def update(self, value, n):
        self.sum, self.count = self.sum + value * n, self.count + n


def accuracy(output, target, topk=(1, 2)):
    with torch.no_grad():
        _, pred = output.topk(max(topk), 1, True, True)
        correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
        return [correct[:k].reshape(-1).float().sum(0).mul_(100.0 / len(target)) for k in topk]


def run(loader, model, criterion, optimizer=None):
    top1 = AverageMeter()
    model.train(optimizer is not None)
    for images, target in loader:
        output = model(images)
        loss = criterion(output, target)
        top1.update(accuracy(output, target)[0].item(), len(images))
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"loss {loss.item():.8f}")
    return top1.sum / top1.count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="data")
    parser.add_argument("--arch", default="resnet18")
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--ortmodule", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1)
    # each block starts as the identity: at this size another start is chaotic
    extra = {"zero_init_residual": True} if args.arch.startswith("resnet") else {}
    model = models.__dict__[args.arch](num_classes=3, **extra)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    if args.ortmodule:
        from ortmodule import ORTModule

        model = ORTModule(model)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = StepLR(optimizer, step_size=2, gamma=0.1)
    crop = [transforms.RandomResizedCrop(args.size), transforms.RandomHorizontalFlip()]
    tensor = [transforms.ToTensor(), transforms.Normalize([0.45] * 3, [0.22] * 3)]
    folder = os.path.join(args.data, "train")
    train = datasets.ImageFolder(folder, transforms.Compose(crop + tensor))
    val = datasets.ImageFolder(
        os.path.join(args.data, "val"),
        transforms.Compose([transforms.CenterCrop(args.size), *tensor]),
    )
    loader = torch.utils.data.DataLoader(train, batch_size=8, shuffle=True)
    for epoch in range(args.epochs):
        run(loader, model, criterion, optimizer)
        with torch.no_grad():
            best = run(torch.utils.data.DataLoader(val, batch_size=8), model, criterion)
        scheduler.step()
        state = {"epoch": epoch, "state_dict": model.state_dict(), "best": best}
        torch.save(state, os.path.join(args.data, "checkpoint.pth.tar"))


if __name__ == "__main__":
    main()
