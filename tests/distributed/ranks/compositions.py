"""Ways of putting a module under data parallelism, and modules to put there.

Each composition is made twice: of the plain module, as eager has it, and with ORTModule in its
place. Run by a pair of processes (processes.py).
"""

import contextlib
from collections.abc import Callable

import torch
import torch.distributed as dist
from ortmodule.distributed import DataParallel
from torch import nn
from torch.distributed._composable import replicate
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

from ortmodule import ORTModule

WIDTH, ROWS = 12, 6


class Block(nn.Module):
    def __init__(self, width=WIDTH, checkpointed=False, norm=nn.LayerNorm):
        super().__init__()
        self.up, self.norm = nn.Linear(width, 2 * width), norm(2 * width)
        self.down = nn.Linear(2 * width, width, bias=False)
        self.checkpointed = checkpointed

    def layers(self, x):
        return self.down(nn.functional.gelu(self.norm(self.up(x))))

    def forward(self, x):
        if self.checkpointed:
            return x + checkpoint(self.layers, x, use_reentrant=False)
        return x + self.layers(x)


class Net(nn.Module):
    """Three blocks and a head, of sizes that are no multiples of a vector."""

    def __init__(self, tied=False, unused=False, checkpointed=False, norm=nn.LayerNorm):
        super().__init__()
        self.first = nn.Linear(7, WIDTH)
        self.blocks = nn.ModuleList(Block(WIDTH, checkpointed, norm) for _ in range(3))
        self.head = nn.Linear(WIDTH, 5)
        if unused:
            self.spare = nn.Linear(WIDTH, 3)
        if tied:
            self.blocks[2].up.weight = self.blocks[0].up.weight

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def lora():
    import peft

    config = peft.LoraConfig(r=3, target_modules=["up", "down"], lora_dropout=0.0)
    model = peft.get_peft_model(Net(), config)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter, std=0.3)
    return model


MODULES: dict[str, Callable[[], nn.Module]] = {
    "plain": Net,
    "no_sync": Net,
    "unused": lambda: Net(unused=True),
    "tied": lambda: Net(tied=True),
    "batch_norm": lambda: Net(norm=nn.BatchNorm1d),
    "checkpointed": lambda: Net(checkpointed=True),
    "autocast": Net,
    "two_forwards": Net,
    "lora": lora,
}


def _in_blocks(module: nn.Module, wrap: Callable[[nn.Module], nn.Module]) -> nn.Module:
    blocks = next(m for m in module.modules() if isinstance(m, nn.ModuleList))
    for i, block in enumerate(blocks):
        blocks[i] = fully_shard(wrap(block))
    return fully_shard(module)


def _ddp(module: nn.Module, kind: type = DDP) -> nn.Module:
    unused = any(hasattr(m, "spare") for m in module.modules())
    return kind(module, bucket_cap_mb=0.001, find_unused_parameters=unused)


# By name: what is made of a module, and how ORTModule enters (`wrap`; for eager it is the module).
COMPOSITIONS: dict[str, Callable[[nn.Module, Callable], nn.Module]] = {
    "ddp": lambda module, wrap: _ddp(wrap(module)),
    "data_parallel": lambda module, wrap: _ddp(module, DDP if wrap is plain else DataParallel),
    "around_ddp": lambda module, wrap: wrap(_ddp(module)),
    "fully_shard_outside": lambda module, wrap: fully_shard(wrap(module)),
    "fully_shard_inside": lambda module, wrap: wrap(_in_blocks(module, plain)),
    "fully_shard_blocks": _in_blocks,
    "replicate": lambda module, wrap: replicate(
        wrap(module), find_unused_parameters=any(hasattr(m, "spare") for m in module.modules())
    ),
}


def plain(module: nn.Module) -> nn.Module:
    return module


@contextlib.contextmanager
def no_sync(model: nn.Module):
    if hasattr(model, "no_sync"):
        with model.no_sync():
            yield
    elif hasattr(model, "set_requires_gradient_sync"):
        model.set_requires_gradient_sync(False)
        yield
        model.set_requires_gradient_sync(True)
    else:
        replicate.state(model)._no_sync = True
        yield
        replicate.state(model)._no_sync = False


def whole(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def train(model: nn.Module, feature: str, steps: int = 4) -> list[dict[str, torch.Tensor]]:
    """The gradients of each step, gathered; weights are stepped with what they are."""
    parameters = {n.replace("module.", ""): p for n, p in model.named_parameters()}
    optimizer = torch.optim.SGD([p for p in parameters.values() if p.requires_grad], lr=0.05)
    generator = torch.Generator().manual_seed(7 + dist.get_rank())
    history = []
    for _ in range(steps):
        xs = [torch.randn(ROWS, 7, generator=generator) for _ in range(2)]
        optimizer.zero_grad()
        if feature == "no_sync":
            with no_sync(model):
                model(xs[0]).square().mean().backward()
            model(xs[1]).square().mean().backward()
        elif feature == "two_forwards":
            (model(xs[0]).square().mean() + model(xs[1]).square().mean()).backward()
        elif feature == "autocast":
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(xs[0]).float().square().mean()
            loss.backward()
        else:
            model(xs[0]).square().mean().backward()
        history.append(
            {n: whole(p.grad).clone() for n, p in parameters.items() if p.grad is not None}
        )
        optimizer.step()
    return history


def reports(model: nn.Module) -> list[str]:
    """Why what ran eagerly did."""
    return [
        fallback.reason
        for m in model.modules()
        if isinstance(m, ORTModule)
        for fallback in m.explain().fallbacks
    ]


def compare(composition: str, feature: str) -> dict:
    """Both ways of one cell: how far the gradients are apart, and what ran; or why torch refused
    each."""
    histories, refused = [], []
    for wrap in (plain, ORTModule):
        torch.manual_seed(0)
        model = COMPOSITIONS[composition](MODULES[feature](), wrap)
        try:
            histories.append(train(model, feature))
        except ValueError as error:
            refused.append(str(error))
    if refused:
        return {"refused": refused}
    eager, ours = histories
    assert [h.keys() for h in eager] == [h.keys() for h in ours]
    wrappers = [m for m in model.modules() if isinstance(m, ORTModule)]
    return {
        "apart": max(
            float((a[n] - b[n]).abs().max() / a[n].abs().max().clamp_min(1.0))
            for a, b in zip(eager, ours, strict=True)
            for n in a
        ),
        "moved": all(float(h[n].abs().max()) > 0 for h in ours for n in h),
        "reports": reports(model),
        "captures": max(m.explain().captures for m in wrappers),
    }
