"""Every way of putting a module under data parallelism, times what modules do: as in eager."""

import pytest
from compositions import COMPOSITIONS, MODULES

# Of the largest element; what autocast rounds differs between the engines (README, precision).
NEAR = {"autocast": 5e-3}


@pytest.mark.parametrize("feature", MODULES)
@pytest.mark.parametrize("composition", COMPOSITIONS)
def test_gradients_are_eagers(pair, composition, feature):
    for found in pair.run("compositions", "compare", composition, feature):
        if feature == "tied" and "refused" in found:  # by FSDP's blocks, after torch 2.11
            eager, ours = found["refused"]
            assert ours == eager and "is shared with a parameter" in eager
            continue
        assert found["apart"] <= NEAR.get(feature, 1e-6), found
        assert found["moved"]
        assert not found["reports"]
        # One for each module that is captured, whatever the number of steps.
        parts = {"fully_shard_inside": 5, "fully_shard_blocks": 1}
        assert found["captures"] == parts.get(composition, 1), found
