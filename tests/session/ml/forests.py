"""Random trees, as the three spellings list them."""

import numpy as np
from onnx import TensorProto, helper

from .models import tensor

MODES = ["LEQ", "LT", "GTE", "GT", "EQ", "NEQ"]


class Forest:
    """Trees of random shape; `entries` of each leaf: how many (id, weight)."""

    def __init__(self, trees=5, depth=4, features=3, modes=("LEQ",), missing=False, seed=0):
        self.random = np.random.default_rng(seed)
        self.features, self.modes, self.depth = features, modes, depth
        self.nodes = []  # (tree, number, mode, feature, split, yes, no, missing)
        self.missing = missing
        for tree in range(trees):
            self.count = 0
            self.grow(tree, 0)

    def grow(self, tree, depth):
        number, random = self.count, self.random
        self.count += 1
        at = len(self.nodes)
        self.nodes.append(None)
        if depth == self.depth or (depth > 1 and random.random() < 0.2):
            self.nodes[at] = (tree, number, "LEAF", 0, 0.0, 0, 0, 0)
            return number
        mode = random.choice(self.modes)
        split = float(np.float32(random.integers(-4, 5) / 2))
        yes, no = self.grow(tree, depth + 1), self.grow(tree, depth + 1)
        missing = int(self.missing and random.random() < 0.5)
        feature = int(random.integers(self.features))
        self.nodes[at] = (tree, number, f"BRANCH_{mode}", feature, split, yes, no, missing)
        return number

    def leaves(self):
        return [(node[0], node[1]) for node in self.nodes if node[2] == "LEAF"]

    def listed(self, kind, ids, low=-1.0, tensors=False):
        """Attributes of the older spellings; every leaf has a weight for each of `ids`."""
        tree, number, mode, feature, split, yes, no, missing = map(
            list, zip(*self.nodes, strict=True)
        )
        entries = [(*leaf, i) for leaf in self.leaves() for i in ids]
        weights = self.random.uniform(low, 1, len(entries))
        attrs = {
            "nodes_treeids": tree, "nodes_nodeids": number, "nodes_modes": mode,
            "nodes_featureids": feature, "nodes_truenodeids": yes, "nodes_falsenodeids": no,
            f"{kind}_treeids": [e[0] for e in entries], f"{kind}_nodeids": [e[1] for e in entries],
            f"{kind}_ids": [e[2] for e in entries],
        }  # fmt: skip
        if self.missing:
            attrs["nodes_missing_value_tracks_true"] = missing
        for name, values in (("nodes_values", split), (f"{kind}_weights", weights)):
            if tensors:
                attrs[f"{name}_as_tensor"] = tensor(np.array(values, np.float64))
            else:
                attrs[name] = [float(np.float32(value)) for value in values]
        return attrs

    def flat(self, targets, dtype=np.float32):
        """Attributes of TreeEnsemble, opset 5."""
        branch = [i for i, node in enumerate(self.nodes) if node[2] != "LEAF"]
        leaf = [i for i, node in enumerate(self.nodes) if node[2] == "LEAF"]
        at = {node[:2]: i for i, node in enumerate(self.nodes)}
        place = {i: k for part in (branch, leaf) for k, i in enumerate(part)}
        nodes = [self.nodes[i] for i in branch]
        yes, no = ([at[node[0], node[side]] for node in nodes] for side in (5, 6))
        modes = [MODES.index(node[2].removeprefix("BRANCH_")) for node in nodes]
        attrs = {
            "tree_roots": [place[i] for i in branch if self.nodes[i][1] == 0],
            "nodes_modes": tensor_of_bytes(modes),
            "nodes_featureids": [node[3] for node in nodes],
            "nodes_splits": tensor(np.array([node[4] for node in nodes], dtype)),
            "nodes_truenodeids": [place[i] for i in yes],
            "nodes_falsenodeids": [place[i] for i in no],
            "nodes_trueleafs": [int(self.nodes[i][2] == "LEAF") for i in yes],
            "nodes_falseleafs": [int(self.nodes[i][2] == "LEAF") for i in no],
            "leaf_targetids": [int(self.random.integers(targets)) for _ in leaf],
            "leaf_weights": tensor(self.random.standard_normal(len(leaf)).astype(dtype)),
            "n_targets": targets,
        }
        if self.missing:
            attrs["nodes_missing_value_tracks_true"] = [node[7] for node in nodes]
        return attrs

    def rows(self, count, dtype="float32", nans=False):
        """Features that often are a split themselves."""
        x = self.random.integers(-6, 7, (count, self.features)) / 2
        if nans:
            x[self.random.random(x.shape) < 0.3] = np.nan
        return x.astype(dtype)


def tensor_of_bytes(values):
    return helper.make_tensor("modes", TensorProto.UINT8, [len(values)], values)
