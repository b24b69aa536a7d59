"""Forwards that assert something of data, for test_asserted.py: pytest writes the asserts of a test
module anew.
"""

import torch


def asserted_true(net, x, n):
    assert torch.all(n >= 0).item(), "negative"
    return net.second(net.first(x))


def asserted_most(net, x, n):
    assert n.max().item() <= x.shape[1]
    return net.second(net.first(x))


def asserted_not(net, x, n):
    assert not torch.any(n < 0)
    return net.second(net.first(x))


def asserted_both(net, x, n):
    assert n.min() >= 0 and n.max() <= 3, n
    return net.second(net.first(x))


def asserted_number(net, x, n):
    assert n[0].item() == 1
    return net.second(net.first(x)) * n[0].item()


def asserted_beside(net, x, n):
    if n.max().item() > 3:
        return net.second(net.first(x)) * 2
    assert n.max().item() <= 3
    return net.second(net.first(x))


ALL = (asserted_true, asserted_most, asserted_not, asserted_both, asserted_number)
