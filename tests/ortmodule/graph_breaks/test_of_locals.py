"""Code that reads forward's locals by a text: no part has those that no code names."""

import pytest
import torch
from pairs import Net, Pair


def evaluated(net, x):
    factor, y = 2, net.first(x)  # noqa: F841
    number = y.sum().item()  # noqa: F841
    return y * eval("factor * number")


def executed(net, x):
    made = {"y": 2}
    exec("z = y", made)
    return made["z"] + net.first(x) + eval("x.sum()")


def compiled(net, x):
    return net.first(x) + eval(compile("x.sum()", "text", "eval"))


def of_vars(net, x):
    factor, y = 2, net.first(x)  # noqa: F841
    return y * vars()["factor"] if y.sum() < 1e9 else y


def of_dir(net, x):
    factor, y = 2, net.first(x)
    return y * (3 if "factor" in dir() else 4) if y.sum() < 1e9 else y * factor


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("forward", [evaluated, executed, compiled, of_vars, of_dir])
def test_locals_are_eagers(forward):
    pair = Pair(Net(forward))
    for rows in (5, 5, 3):
        pair.step(torch.randn(rows, 3))
    pair.fell_back("of its own locals")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_text_that_is_given_its_names_is_cut_at():
    def forward(net, x):
        y = net.first(x)
        return y * eval("factor", {"factor": 2.0})

    pair = Pair(Net(forward))
    for rows in (5, 5, 3):
        pair.step(torch.randn(rows, 3))
    assert any("eval" in reason for reason in pair.report.reasons()), pair.report
    assert not any("locals" in reason for reason in pair.report.reasons())
