"""Which devices are taken, and the generators of a call's device."""

import torch

from ortmodule import devices


def test_a_device_without_a_provider_is_refused():
    assert devices.is_provided(torch.device("cpu"))
    assert not devices.is_provided(torch.device("meta"))
    assert devices.provided() >= {"cpu"}


def test_a_call_computes_where_its_tensors_lie():
    host, other = torch.ones(()), torch.ones(2, device="meta")
    assert devices.of([host]) == devices.of([]) == devices.HOST
    assert devices.of([host, other]) == other.device


def test_generators_are_put_back():
    before = devices.random_states(devices.HOST)
    first = torch.rand(3)
    devices.set_random_states(devices.HOST, before)
    assert torch.equal(torch.rand(3), first)
