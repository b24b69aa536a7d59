"""Nothing of its own yet: DDP(ORTModule(model)) works as DDP(model) does.

The wrapper shares its module's parameters and the backward returns each segment's gradients at
once, so DDP's hooks fire and its reduces start before the backward ends; a test with two Gloo
processes holds it (tests/ortmodule/test_streaming.py).
"""
