"""A convolutional network on MNIST: Adadelta, a schedule, a test after each epoch."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.optim.lr_scheduler import StepLR
from torchvision import datasets, transforms


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1)
        self.conv2 = nn.Conv2d(8, 16, 3, 1)
        self.dropout1, self.dropout2 = nn.Dropout(0.0), nn.Dropout(0.0)
        self.fc1 = nn.Linear(2304, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = torch.flatten(self.dropout1(x), 1)
        x = self.dropout2(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


def train(model, device, loader, optimizer):
    model.train()
    for data, target in loader:
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        print(f"loss {loss.item():.8f}")


def test(model, device, loader):
    model.eval()
    loss, correct = 0.0, 0
    with torch.no_grad():
        for data, target in loader:
            output = model(data.to(device))
            loss += F.nll_loss(output, target.to(device), reduction="sum").item()
            correct += output.argmax(1, keepdim=True).eq(target.view(-1, 1)).sum().item()
    print(f"test loss {loss / len(loader.dataset):.4f}, {correct} of {len(loader.dataset)}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="data")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--ortmodule", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1)
    device = torch.device("cpu")
    prepare = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.13,), (0.31,))])
    train_set = datasets.MNIST(args.data, train=True, transform=prepare)
    test_set = datasets.MNIST(args.data, train=False, transform=prepare)
    train_loader = torch.utils.data.DataLoader(train_set, batch_size=20, shuffle=True)
    test_loader = torch.utils.data.DataLoader(test_set, batch_size=50)
    model = Net().to(device)
    if args.ortmodule:
        from ortmodule import ORTModule

        model = ORTModule(model)
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    for _ in range(args.epochs):
        train(model, device, train_loader, optimizer)
        test(model, device, test_loader)
        scheduler.step()


if __name__ == "__main__":
    main()
