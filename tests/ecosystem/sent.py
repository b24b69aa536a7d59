"""What another process does with a model that test_copies.py sends it: no library is imported there
but torch and what the model is of."""

import torch

X = torch.linspace(-1, 1, 30).reshape(5, 6)


def step(model) -> torch.Tensor:
    """The output, after a step of training."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(X).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return model(X).detach()


def worker(model, queue, threads) -> None:
    torch.set_num_threads(threads)
    queue.put(step(model).numpy().copy())
