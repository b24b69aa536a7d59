"""A variational autoencoder of MNIST: it draws a code with torch's randn in each forward."""

import argparse

import torch
from torch import nn, optim
from torch.nn import functional as F
from torchvision import datasets, transforms


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 64)
        self.fc21, self.fc22 = nn.Linear(64, 8), nn.Linear(64, 8)
        self.fc3, self.fc4 = nn.Linear(8, 64), nn.Linear(64, 784)

    def encode(self, x):
        hidden = F.relu(self.fc1(x))
        return self.fc21(hidden), self.fc22(hidden)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        return mu + torch.randn_like(std) * std

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 784))
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar


def loss_function(recon, x, mu, logvar):
    bce = F.binary_cross_entropy(recon, x.view(-1, 784), reduction="sum")
    return bce - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="data")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--ortmodule", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1)
    data = datasets.MNIST(args.data, train=True, transform=transforms.ToTensor())
    loader = torch.utils.data.DataLoader(data, batch_size=20, shuffle=True)
    model = VAE()
    if args.ortmodule:
        from ortmodule import ORTModule

        model = ORTModule(model)
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(args.epochs):
        model.train()
        for images, _ in loader:
            optimizer.zero_grad()
            recon, mu, logvar = model(images)
            loss = loss_function(recon, images, mu, logvar)
            loss.backward()
            optimizer.step()
            print(f"loss {loss.item() / len(images):.8f}")
        with torch.no_grad():
            print("mean of samples", model.decode(torch.randn(16, 8)).mean().item())


if __name__ == "__main__":
    main()
