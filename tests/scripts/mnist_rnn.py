"""An LSTM that reads MNIST's digits row by row."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn, optim
from torchvision import datasets, transforms


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(input_size=28, hidden_size=32, batch_first=True)
        self.batchnorm = nn.BatchNorm1d(32)
        self.dropout1, self.dropout2 = nn.Dropout(0.0), nn.Dropout(0.0)
        self.fc1, self.fc2 = nn.Linear(32, 16), nn.Linear(16, 10)

    def forward(self, input):
        input = input.reshape(-1, 28, 28)
        output, hidden = self.rnn(input)
        output = output[:, -1, :]
        output = self.dropout1(self.batchnorm(output))
        output = self.dropout2(F.relu(self.fc1(output)))
        return F.log_softmax(self.fc2(output), dim=1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="data")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--ortmodule", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1)
    data = datasets.MNIST(args.data, train=True, transform=transforms.ToTensor())
    loader = torch.utils.data.DataLoader(data, batch_size=20, shuffle=True)
    model = Net()
    if args.ortmodule:
        from ortmodule import ORTModule

        model = ORTModule(model)
    optimizer = optim.Adadelta(model.parameters(), lr=0.1)
    for _ in range(args.epochs):
        model.train()
        for images, labels in loader:
            optimizer.zero_grad()
            loss = F.nll_loss(model(images), labels)
            loss.backward()
            optimizer.step()
            print(f"loss {loss.item():.8f}")


if __name__ == "__main__":
    main()
