"""The packages' public names: listed before they are loaded, and no others."""

import subprocess
import sys

import ortmodule.distributed
import ortmodule.optim
import pytest

import ortmodule

PACKAGES = (ortmodule, ortmodule.optim, ortmodule.distributed)


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_are_there(package):
    assert package.__all__ and all(getattr(package, name) is not None for name in package.__all__)


@pytest.mark.parametrize("package", PACKAGES)
def test_other_names_are_an_error(package):
    name = package.__name__
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'Nothing'"):
        _ = package.Nothing


def test_names_are_listed_before_torch_is_loaded():
    code = (
        "import sys, ortmodule, ortmodule.optim as optim\n"
        "assert {'ORTModule', 'InferenceSession'} <= {*dir(ortmodule)}, dir(ortmodule)\n"
        "assert {'AdamW', 'fuse'} <= {*dir(optim)}, dir(optim)\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
