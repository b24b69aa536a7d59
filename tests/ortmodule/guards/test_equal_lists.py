"""Lists that no code names and that are replaced by equal ones, as configs' when they are saved."""

import copy

import torch
import transformers
from torch import nn

from ortmodule import ORTModule


class Config:
    """With a lookup of its own: any attribute may be reached."""

    def __init__(self):
        self.scale, self.names, self.deep = 2.0, ["a", 1], [["a"]]

    def __getattribute__(self, key):
        return super().__getattribute__(key)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.config = nn.Linear(3, 3), Config()

    def forward(self, x):
        y = self.linear(x) * self.config.scale
        first, deep = (getattr(self.config, name) for name in ("name" + "s", "de" + "ep"))
        return y + len(deep[0]) if first[0] == "a" else -y


class Same:
    """Calls of a module and of its twin in eager."""

    def __init__(self):
        torch.manual_seed(0)
        self.plain = Model()
        self.twin = copy.deepcopy(self.plain)
        self.model = ORTModule(self.twin)

    def after(self, change) -> int:
        """The captures there are once both were changed and called."""
        for module in (self.plain, self.twin):
            change(module.config)
        x = torch.randn(2, 3)
        torch.testing.assert_close(self.model(x), self.plain(x))
        return self.model.explain().captures


def rename(config):
    config.names = ["a", 1]


def test_an_equal_list_stands_and_is_watched():
    both = Same()
    assert [both.after(rename) for _ in range(12)] == [1] * 12
    assert both.after(lambda config: config.names.__setitem__(0, "b")) == 2
    both.after(lambda config: setattr(config, "names", ["b", 1]))
    both.after(lambda config: config.names.__setitem__(0, "a"))
    assert not both.model.explain().fallbacks


def test_another_list_does_not():
    both = Same()
    assert both.after(rename) == 1
    for names in (["b", 1], ["a"], ["a", True], ("a", 1)):
        both.after(lambda config, names=names: setattr(config, "names", names))
    both.after(lambda config: setattr(config, "deep", [["a", "b"]]))


def test_a_config_that_is_saved(tmp_path):
    """Its architectures are None before the first time."""
    config = transformers.BertConfig(
        num_hidden_layers=1, hidden_size=8, intermediate_size=8, num_attention_heads=2,
        vocab_size=10,
    )  # fmt: skip
    model = transformers.BertModel(config)
    wrapped = ORTModule(model)
    for _ in range(9):
        wrapped(torch.zeros(1, 4, dtype=torch.int64))
        model.save_pretrained(tmp_path)
    report = wrapped.explain()
    assert report.captures == 2 and not report.fallbacks, str(report)
