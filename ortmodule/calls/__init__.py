"""A call described: what of its arguments tells it apart from others.

A call's arguments come in; their tensors in order, a tree of all else and a key go out, and the
same values are built again from these. Numbers that are others from call to call become symbols.
Imports no package.
"""
