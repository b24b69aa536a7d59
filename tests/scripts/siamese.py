"""One network over both images of a pair; do they show the same digit?"""

import argparse
import random

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset
from torchvision import datasets, models


class SiameseNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.resnet = models.resnet.ResNet(
            models.resnet.BasicBlock, [1, 1, 1, 1], zero_init_residual=True
        )
        self.resnet.conv1 = nn.Conv2d(1, 64, (7, 7), (2, 2), (3, 3), bias=False)
        self.fc_in_features = self.resnet.fc.in_features
        self.resnet = nn.Sequential(*list(self.resnet.children())[:-1])
        self.fc = nn.Sequential(
            nn.Linear(self.fc_in_features * 2, 32), nn.ReLU(inplace=True), nn.Linear(32, 1)
        )
        self.sigmoid = nn.Sigmoid()
        self.fc.apply(self.init_weights)

    def init_weights(self, m):
        if isinstance(m, nn.Linear):
            torch.nn.init.xavier_uniform_(m.weight)
            m.bias.data.fill_(0.01)

    def forward_once(self, x):
        output = self.resnet(x)
        return output.view(output.size()[0], -1)

    def forward(self, input1, input2):
        output = torch.cat((self.forward_once(input1), self.forward_once(input2)), 1)
        return self.sigmoid(self.fc(output))


class Pairs(Dataset):
    def __init__(self, root):
        self.data = datasets.MNIST(root, train=True)
        self.of = [torch.nonzero(self.data.targets == k).flatten().tolist() for k in range(10)]

    def __len__(self):
        return 250

    def __getitem__(self, index):
        first = random.randint(0, 9)
        second = first if index % 2 == 0 else (first + random.randint(1, 9)) % 10
        images = [self.data.data[random.choice(self.of[k])] / 255.0 for k in (first, second)]
        return images[0][None], images[1][None], torch.tensor(float(first == second))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="data")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--ortmodule", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1)
    random.seed(1)
    model = SiameseNetwork()
    if args.ortmodule:
        from ortmodule import ORTModule

        model = ORTModule(model)
    optimizer, criterion = optim.Adadelta(model.parameters(), lr=0.02), nn.BCELoss()
    loader = DataLoader(Pairs(args.data), batch_size=10, shuffle=True)
    for _ in range(args.epochs):
        model.train()
        for first, second, same in loader:
            optimizer.zero_grad()
            loss = criterion(model(first, second).squeeze(), same)
            loss.backward()
            optimizer.step()
            print(f"loss {loss.item():.8f}")


if __name__ == "__main__":
    main()
