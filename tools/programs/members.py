"""What a module may own: each member with the line of its __init__, and how forward and the calls
use it.

`uses` are templates of new tensors, `writes` statements of forward, `edits` what is done to the
module between calls (it is `net` there).
"""

import dataclasses
import re

ALL: list["Member"] = []


@dataclasses.dataclass(frozen=True)
class Member:
    init: str
    uses: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    edits: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()  # integers
    reals: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()  # conditions of an if

    @property
    def name(self) -> str:
        return re.search(r"register_buffer\('(\w+)'|self\.(\w+) =", self.init).expand(r"\1\2")


def member(init: str, uses="", writes="", edits="", numbers="", reals="", asks="") -> None:
    """Texts have one template a line."""
    texts = (uses, writes, edits, numbers, reals, asks)
    ALL.append(
        Member(init, *(tuple(t.strip() for t in x.splitlines() if t.strip()) for x in texts))
    )


FIRST = Member(
    "self.l = nn.Linear(3, 3)",
    ("self.l({f3})", "self.l.weight", "self.l({f3}) * self.l.bias", "self.l({f3}).tanh()"),
    ("with torch.no_grad():\n    self.l.bias.mul_(0.5)", "self.l.weight.data.mul_(0.9)"),
    (
        "net.l.weight.data.mul_(0.5)",
        "net.l.bias.requires_grad_(not net.l.bias.requires_grad)",
        "net.l.weight.requires_grad_(False)",
        "net.l.weight = nn.Parameter(data(7, 3, 3))",
        "net.l = nn.Linear(3, 3, bias=True)",
        "net.l.register_forward_hook(lambda mod, args, out: out * 2)",
        "net.l.register_forward_pre_hook(lambda mod, args: (args[0] + 1,))",
        "net.l.register_full_backward_hook("
        "lambda mod, gi, go: (gi[0] * 2,) if gi[0] is not None else None)",
        "net.l.weight.register_hook(lambda g: g * 3)",
        "net.l.bias.data = data(8, 3)",
        "net.zero_grad()",
        "net.zero_grad(set_to_none=False)",
        "net.load_state_dict({k: v * 0.5 for k, v in net.state_dict().items()}, strict=False)",
        "net.requires_grad_(False)",
        "net.requires_grad_(True)",
        "g = net.l.weight.grad\nif g is not None:\n    net.l.weight.data.sub_(0.1 * g)",
        "torch.optim.SGD(net.parameters(), 0.1).step()",
    ),
)

member(
    "self.k = nn.Linear(3, 3, bias=False)",
    "self.k({f3})\nself.k({f3}).relu()\nself.k.weight",
    edits="net.k.weight = net.l.weight\nnet.k = net.l\nnet.k = nn.Identity()\nnet.k.eval()",
)
member("self.k = self.l", "self.k({f3})\nself.k.weight * {r}")
member("self.k = nn.Linear(3, 3)\nself.k.weight = self.l.weight", "self.k({f3})")
member("self.ln = nn.LayerNorm(3)", "self.ln({f3})\nself.ln({f3} * {r})")
member(
    "self.bn = nn.BatchNorm1d(3)",
    "self.bn({m})\nself.bn({f3})\nself.bn.running_mean * {r}",
    edits="net.bn.eval()\nnet.bn.momentum = 0.5\nnet.bn.reset_running_stats()",
)
member("self.bn = nn.BatchNorm1d(3, momentum=None)", "self.bn({m})")
member("self.gn = nn.GroupNorm(1, 3)", "self.gn({f3})")
member("self.inorm = nn.InstanceNorm1d(3, track_running_stats=True)", "self.inorm({f})")
member(
    "self.emb = nn.Embedding(4, 3)",
    "self.emb({i})\nself.emb({i} % 4)\nself.emb.weight",
    edits="net.emb.weight.data[0] = 0",
)
member("self.emb = nn.Embedding(4, 3, padding_idx=0)", "self.emb({i} % 4)")
member("self.emb = nn.EmbeddingBag(4, 3, mode='mean')", "self.emb({i}[None] % 4)")
member("self.rnn = nn.GRU(3, 3)", "self.rnn({f3})[0]\nself.rnn({f3})[1]")
member("self.rnn = nn.LSTM(3, 3, batch_first=True)", "self.rnn({f3})[0]\nself.rnn({f3})[1][1]")
member("self.cell = nn.GRUCell(3, 3)", "self.cell({f3}, {f3})\nself.cell({m})")
member("self.mha = nn.MultiheadAttention(3, 1)", "self.mha({f3}, {f3}, {f3})[0]")
member("self.conv = nn.Conv1d(3, 3, 1)", "self.conv({f})\nself.conv({f3}.mT)")
member("self.conv = nn.Conv2d(1, 2, 2, padding=1)", "self.conv({m}[None, None])")
member(
    "self.seq = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3))",
    "self.seq({f3})",
    edits="net.seq[1] = nn.Tanh()\ndel net.seq[1]\nnet.seq.append(nn.Tanh())\n"
    "net.seq[0].bias = None",
)
member(
    "self.stack = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])",
    "self.stack[0]({f3})\nself.stack[{n} % 2]({f3})\nsum(a({f3}) for a in self.stack)",
    edits="net.stack.append(nn.Linear(3, 3))\nnet.stack[0] = net.stack[1]",
    numbers="len(self.stack)",
)
member(
    "self.table = nn.ModuleDict({'a': nn.Linear(3, 3), 'b': nn.Tanh()})",
    "self.table['a']({f3})\nself.table[self.mode if hasattr(self, 'mode') else 'b']({f3})",
    edits="net.table['b'] = nn.ReLU()",
)
member("self.act = nn.PReLU()", "self.act({f})", edits="net.act = nn.ReLU()\nnet.act = torch.sin")
member("self.act = torch.tanh", "self.act({f})", edits="net.act = torch.sin\nnet.act = F.relu")
member("self.drop = nn.Dropout(0.0)", "self.drop({f})")
member("self.up = nn.Upsample(scale_factor=2)", "self.up({m}[None])")
member("self.wn = torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))", "self.wn({f3})")
member("self.sn = torch.nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3))", "self.sn({f3})")
member("self.old = torch.nn.utils.weight_norm(nn.Linear(3, 3))", "self.old({f3})")
member(
    "self.p = nn.Parameter(data(11, 3))",
    "self.p\nself.p * {f}\n{f} + self.p[0]\nself.p.exp() * {f3}",
    "with torch.no_grad():\n    self.p.clamp_(-1, 1)",
    "net.p.grad = torch.ones(3)\nnet.p = nn.Parameter(data(12, 3))\nnet.p.data[0] = 2.0",
)
member("self.p = nn.Parameter(data(11, 3, 3).t())", "self.p\n{f3} @ self.p")
member(
    "self.ps = nn.ParameterList([nn.Parameter(data(13, 3)), nn.Parameter(data(14, 1))])",
    "self.ps[0] * {f}\nsum(a.sum() for a in self.ps)",
)
member(
    "self.register_buffer('b', data(15, 3))",
    "self.b\nself.b * {f}\n{f3} + self.b[None]\nself.b.clone()",
    "self.b.add_(1)\nself.b.mul_({r})\nself.b += {f3}.detach().float().reshape(-1, 3).mean(0)\n"
    "self.b = self.b * 0.5\nself.b[0] = {r}\nself.b.copy_({f3}.detach())\n"
    "self.b[1:].fill_({r})\nself.b.lerp_(self.l.bias.detach(), 0.5)\n"
    "self.b.data = self.b.data + 1\n"
    "self.b.view(3, 1).mul_(2)\nself.b.set_(self.b + 1)\nself.b = {f3}.detach()",
    "net.b.add_(1)\nnet.b = data(16, 3)\nnet.b[0] = 3.0\nnet.b = torch.zeros(3)",
    asks="self.b[0] > 0\nself.b.sum() > 2",
)
member(
    "self.register_buffer('steps', torch.zeros((), dtype=torch.int64))",
    "{f} * self.steps\nself.steps + {n}",
    "self.steps += 1\nself.steps.add_({n})\nself.steps = self.steps + 1",
    "net.steps.zero_()\nnet.steps += 5",
    numbers="int(self.steps)",
    asks="self.steps > 1\nself.steps % 2 == 0",
)
member(
    "self.register_buffer('none', None)",
    writes="self.none = {f}.detach()",
    asks="self.none is None",
)
member(
    "self.register_buffer('low', data(17, 3).bfloat16())",
    "self.low * {f}\nself.low + 1",
    "self.low.mul_({r})\nself.low.add_({f3}.detach().sum())",
)
member(
    "self.n = 1",
    "{f} * self.n\n{f} ** self.n",
    "self.n += 1\nself.n = self.n * 2 % 7\nself.n = {f}.shape[0]\nself.n -= 1",
    "net.n = 3\nnet.n += 1\nnet.n = 2.5\nnet.n = True",
    numbers="self.n",
    asks="self.n > 2\nself.n % 2 == 0",
)
member(
    "self.r = 0.5",
    "{f} * self.r\n{r} * self.r + {f}",
    "self.r *= 0.5\nself.r = self.r + {n}",
    "net.r = 0.25\nnet.r = 3\nnet.r = float('nan')\nnet.r = -0.0",
    reals="self.r",
    asks="self.r < 0.3",
)
member(
    "self.flag = True",
    writes="self.flag = not self.flag",
    edits="net.flag = not net.flag\nnet.flag = None\nnet.flag = 0",
    asks="self.flag\nnot self.flag",
)
member(
    "self.mode = 'a'",
    edits="net.mode = 'b'\nnet.mode = 'ab'",
    writes="self.mode = self.mode + 'b'",
    asks="self.mode == 'a'\n'b' in self.mode",
    numbers="len(self.mode)",
)
member(
    "self.items = []",
    "sum(self.items) + {f}\n{f} * (self.items[-1] if self.items else 1)",
    "self.items.append({n})\nself.items.append({r})\nself.items = self.items[-2:]\n"
    "self.items.clear()\n"
    "self.items.append({f}.sum().item())\nself.items.insert(0, {n})",
    "net.items.append(1)\nnet.items = [1, 2]\nnet.items.clear()",
    numbers="len(self.items)",
    asks="len(self.items) > 1\nself.items",
)
member(
    "self.kept = []",
    "self.kept[-1] * {f} if self.kept else {f}\nsum(t.sum() for t in self.kept) + {f}",
    "self.kept.append({f}.detach())\nself.kept.append({f})\nself.kept[:] = self.kept[-1:]",
    "net.kept.clear()\nnet.kept = [data(18, 3)]",
    asks="self.kept",
)
member(
    "self.seen = {}",
    "{f} + self.seen.get('x', 0)\n{f} * len(self.seen)",
    "self.seen['x'] = {f}.detach().sum()\nself.seen[{n}] = {n}\n"
    "self.seen['n'] = self.seen.get('n', 0) + 1\nself.seen.pop('x', None)",
    "net.seen['x'] = 2.0\nnet.seen.clear()\nnet.seen = {'x': data(19, 3)}",
    asks="'x' in self.seen",
)
member(
    "self.last = None",
    "{f} if self.last is None else {f} + self.last\n"
    "{f} * (1.0 if self.last is None else self.last.mean())",
    "self.last = {f}.detach()\nself.last = {f}\nself.last = {f}.sum().item()",
    "net.last = None\nnet.last = torch.ones(())",
    asks="self.last is None\nself.last is not None",
)
member(
    "self.conf = Pack(data(20, 3), 2)",
    "self.conf.a * {f}\n{f} ** self.conf.n",
    "self.conf.n += 1\nself.conf.a = {f3}.detach()\nself.conf.a.add_(1)",
    "net.conf.n = 3\nnet.conf = Pack(data(21, 3), 1)\nnet.conf.a.mul_(2)",
    numbers="self.conf.n",
    asks="self.conf.n > 2",
)
member(
    "self.const = data(22, 3)",
    "self.const * {f}\nself.const.sum() + {f}",
    "self.const.add_(1)\nself.const = self.const * 2",
    "net.const.add_(1)\nnet.const = data(23, 3)\nnet.const = data(23, 1)",
)
member(
    "self.call = functools.partial(torch.mul, other=2.0)",
    "self.call({f})",
    edits="net.call = functools.partial(torch.add, other=1.0)",
)
member(
    "self.fs = (torch.sin, torch.cos)",
    "self.fs[{n} % 2]({f})\nfunctools.reduce(lambda a, g: g(a), self.fs, {f})",
    edits="net.fs = (torch.tanh,)",
)
