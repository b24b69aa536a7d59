"""Statements of a forward: in-place writes, control flow, hooks, scopes; functions of a Draft.

`@statement(weight)` registers one; it writes what it can and gives nothing back.
Used by modules.py.
"""

ALL: list = []
WEIGHTS: list[float] = []


def statement(weight: float):
    def add(write):
        ALL.append(write)
        WEIGHTS.append(weight)
        return write

    return add


def some(d, least: int = 1, most: int = 2) -> None:
    """Statements of a body."""
    for _ in range(d.rng.randint(least, most)):
        one(d)


def one(d) -> None:
    d.rng.choices(ALL, WEIGHTS)[0](d)


def condition(d) -> str:
    for _ in range(20):
        text = d.fill(d.rng.choice(CONDITIONS + d.asks))
        if text and d.runs(f"bool({text})"):
            return text
    return "True"


CONDITIONS = """
self.training
{f}.shape[0] > 2
{n} > 2
{n} == 2
{f}.sum() > 0
{f}.mean() > {r}
({f} > 0).any()
{f}.isnan().any()
{f}.requires_grad
torch.is_grad_enabled()
{f}.dim() == 2
{f}.numel() > 6 and self.training
{f}.max().item() > 1
len({f}) % 2
{f}.is_contiguous()
isinstance({n}, int)
bool({f}.any()) or {n} > 1
""".strip().splitlines()

WRITES = """
{f}.add_({s})
{f}.mul_({r})
{f}.sub_({s}, alpha={r})
{f}.zero_()
{f}.relu_()
{f}.tanh_()
{f}.clamp_(-1, 1)
{f}.fill_({r})
{f}.copy_({s})
{f}.div_({r})
{f}.exp_()
{f}.neg_()
{f}.masked_fill_({b}, {r})
{f}.index_fill_(0, {i}, {r})
{f}.index_add_(0, {i}, {f})
{f}.scatter_add_(0, {i}, {f})
{f}.t_()
{f}.unsqueeze_(0)
{f}.squeeze_()
{f}.fill_diagonal_({r})
{f}.lerp_({s}, 0.5)
{f}.addcmul_({s}, {s})
{f}.cumsum_({d})
{f}[0] = {r}
{f}[0] = {f}
{f}[:, 0] = {f}
{f}[1:] = {f}[:-1]
{f}[..., -1] += {r}
{f}[{b}] = {r}
{f}[{f} > 0] = {r}
{f}[{i}] = {f}
{f}[{i}] += 1
{f}[-1:].mul_({r})
{f}[0].add_({f})
{f}[::2].zero_()
{f}.view(-1).add_({r})
{f}.view(-1)[0] = {r}
{f}.t().mul_({s})
{f}.T[0].add_({r})
{f}.diagonal().add_({r})
{f}.unsqueeze(0).mul_({r})
{f}.select(0, 0).copy_({f})
{f}.narrow(0, 0, 1).mul_({r})
{f}.unfold(0, 1, 1).add_({r})
{f}.chunk(2)[0].mul_({r})
{f}.unbind(0)[0].add_({r})
{f}.expand_as({s}).add_({r})
{f}.detach().mul_({r})
{f}.data.add_({r})
torch.add({f}, {s}, out={f}.detach().clone())
torch._foreach_mul_([{f}, {s}], {r})
{i}.add_(1)
{b}.logical_not_()
{f} += {s}
{f} *= {r}
""".strip().splitlines()


@statement(10)
def a_tensor(d):
    d.tensor()


@statement(4)
def a_layer(d):
    d.new(d.rng.choice(d.uses))


@statement(4)
def a_write(d):
    d.statement(d.rng.choice(WRITES))


@statement(2)
def a_view_then_a_write(d):
    views = ["[0]", "[:, 1]", "[1:]", ".t()", ".view(-1)", "[None]", ".diagonal()", ".detach()"]
    views += [".reshape(-1)", ".transpose(0, -1)", ".expand(2, *{f}.shape)", ".flatten()", ".data"]
    base = d.new("{f} + 0") if d.rng.random() < 0.6 else d.find(lambda v: v.is_floating_point())
    view = base and d.new(base + d.rng.choice(views))
    if view:
        target = d.rng.choice([base, view])
        d.statement(target + d.rng.choice([".add_({r})", ".mul_({r})", ".copy_({f})", ".relu_()"]))


@statement(2)
def a_state(d):
    if d.states:
        d.statement(d.rng.choice(d.states))


@statement(1.5)
def a_branch(d):
    name = d.find(lambda v: v.is_floating_point())
    if not name:
        return

    def body():
        some(d, 0, 2)
        if d.rng.random() < 0.8:
            d.write(f"{name} = {d.same(name)}")

    d.block(f"if {condition(d)}:", body)
    if d.rng.random() < 0.5:
        d.block("else:", body)


@statement(0.3)
def an_early_return(d):
    name = d.find(lambda v: v.is_floating_point())
    if name and d.depth == 2:
        d.block(f"if {condition(d)}:", lambda: d.write(f"return {d.same(name)}"))


@statement(1)
def a_loop(d):
    name = d.find(lambda v: v.is_floating_point())
    if not name:
        return
    heads = ["for i in range({n}):", "for i in range({f}.shape[0]):", "for i in (0, 1):"]
    heads += ["for i, c in enumerate([1, 2.5]):", "for i in reversed(range(2)):"]
    head = d.fill(d.rng.choice(heads))
    for at, world in enumerate(d.worlds):
        world.update(i=at, c=2.5)
    numbers = list(d.numbers)

    def body():
        some(d, 1, 2)
        step = d.rng.choice([f"{name} * 0.5 + i", f"{name} + {d.same(name)}", d.same(name)])
        d.write(f"{name} = {step}")
        if d.rng.random() < 0.2:
            d.block(f"if {condition(d)}:", lambda: d.write(d.rng.choice(["break", "continue"])))

    if head:
        d.numbers.append("i")
        d.block(head, body)
        d.numbers = numbers


@statement(0.3)
def a_while(d):
    name = d.find(lambda v: v.is_floating_point())
    if not name:
        return
    count = f"count{d.depth}"  # one inside of another ends by its own
    d.write(f"{count} = 0")
    asks = [f"{count} < 2", f"{count} < 3 and {name}.abs().sum() < 5", f"{count} < k"]
    ask = d.rng.choice(asks)

    def body():
        d.write(f"{count} += 1")
        some(d, 0, 1)
        d.write(f"{name} = {d.same(name)}")

    d.block(f"while {ask}:", body)


@statement(0.8)
def a_scope(d):
    heads = ["with torch.no_grad():", "with torch.enable_grad():", "if True:", "for _ in [0]:"]
    heads += [
        'with torch.autocast("cpu", dtype=torch.bfloat16):',
        "with contextlib.suppress(ValueError):",
    ]
    heads += ["with torch.set_grad_enabled(self.training):", "with torch.inference_mode(False):"]
    head = d.rng.choice(heads)
    before = list(d.names)
    d.block(head, lambda: some(d, 1, 2))
    made = [
        n for n in dict.fromkeys(n for n in d.worlds[0] if n.startswith("v")) if n not in before
    ]
    d.names += [n for n in made if any(line.strip().startswith(f"{n} = ") for line in d.lines)][:1]


@statement(0.4)
def a_try(d):
    name = d.find(lambda v: v.is_floating_point())
    if not name:
        return

    def fails():
        some(d, 0, 1)
        body = ["raise ValueError('no')", f"{name}.view(7, 7)", "{}['a']", f"{name} = {name} * 2"]
        d.write(d.rng.choice(body))

    d.block("try:", fails)
    d.block("except Exception:", lambda: d.write(f"{name} = {d.same(name)}"))


@statement(0.5)
def a_cut(d):
    texts = ["torch._dynamo.graph_break()", "k = k if {f}.sum() > 0 else k + 1"]
    texts += ["count = {f}.sum().item()", "text = str({f}.shape)", "print(end='')"]
    d.statement(d.rng.choice(texts))


@statement(0.4)
def an_assert(d):
    asserts = ["assert {f}.shape[0] < 9", "assert {f}.isfinite().all()", "assert {n} > -9"]
    asserts += ["torch._assert({f}.dim() >= 0, 'no')", "assert not {f}.isnan().any(), 'nan'"]
    d.statement(d.rng.choice(asserts))


@statement(0.5)
def a_hook(d):
    hooks = ["lambda g: g * 2", "lambda g: None", "lambda g: g + 1"]
    name = d.find(lambda v: v.is_floating_point() and v.requires_grad)
    if name:
        d.statement(f"{name}.register_hook({d.rng.choice(hooks)})")
        if d.rng.random() < 0.3:
            d.statement(f"{name}.retain_grad()")


@statement(0.3)
def a_cond(d):
    name = d.find(lambda v: v.is_floating_point())
    asks = ["{f}.sum() > 0", "{f}.shape[0] > 2", "{n} > 2", "{b}.any()"]
    ask = name and d.fill(d.rng.choice(asks))
    if ask:
        bodies = [
            "a.sin()",
            "a * 2",
            "a + self.l.bias.sum()",
            "a.relu() + 1",
            "torch.zeros_like(a)",
        ]
        one, two = d.rng.choice(bodies), d.rng.choice(bodies)
        d.new(f"torch.cond({ask}, lambda a: {one}, lambda a: {two}, ({name},))")


@statement(0.5)
def a_function_inside(d):
    name = d.find(lambda v: v.is_floating_point())
    if not name:
        return
    used = d.fill("{f}")
    d.write("def inner(a, c=2):")
    body = d.rng.choice(
        ["return a * c", f"return a + {used}.sum()", "return self.l.bias.sum() * a"]
    )
    d.write("    " + body)
    d.runs(f"def inner(a, c=2):\n    {body}")
    d.new(f"inner({name})")


@statement(0.4)
def containers(d):
    texts = [
        "pair = [{f}, {f}]\npair[0] = pair[1] * 2",
        "table = {'a': {f}, 'n': {n}}\ntable['a'] += 1",
    ]
    texts += [
        "pack = Pack({f}, {n})\npack.n += 1",
        "c['new'] = {f}",
        "c['a'] = c['a'] * {r}",
        "c['a'].add_(1)",
    ]
    if d.statement(d.rng.choice(texts)):
        d.new(
            d.rng.choice(
                ["pair[0]", "table['a'] * table['n']", "pack.a * pack.n", "c['a']", "sum(pair)"]
            )
        )
