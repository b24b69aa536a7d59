"""Torch's pytree: nothing is registered in it."""

from .entry import need

tree_flatten = need("torch.utils._pytree.tree_flatten", "values of operators")
tree_leaves = need("torch.utils._pytree.tree_leaves", "values of operators")
tree_map = need("torch.utils._pytree.tree_map", "values of operators")
tree_unflatten = need("torch.utils._pytree.tree_unflatten", "values of operators")
