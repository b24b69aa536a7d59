"""Templates of new tensors, by subject; draft.py says what their places stand for.

Add a line to a list, or a list with `@subject`; what does not run for the chosen operands is not
written, so a template need not say when it holds.
"""

ALL: list[str] = []
PLAIN: list[str] = []  # those of a tensor alone, as bodies of torch.cond and the like take them


def add(text: str, to: tuple = (ALL,)) -> None:
    """One template a line."""
    for each in to:
        each += [line.strip() for line in text.strip().splitlines()]


add(
    """
    {f} + {s}
    {f} * {s}
    {f} - {r}
    {r} - {f}
    {f} * {r}
    {f}.tanh()
    {f}.sin()
    {f}.sigmoid()
    {f}.relu()
    {f}.abs()
    -{f}
    {f}.exp().clamp(max=10)
    {f}.clamp(-1, 1)
    {f}.softmax(-1)
    {f}.square()
    F.gelu({f})
    F.silu({f})
    """,
    (ALL, PLAIN),
)
add("""
    {f} / ({s}.abs() + 1)
    {f} ** 2
    {f} ** {r}
    {r} ** {f}
    {f} / {r}
    {f} // {r}
    {f} % {r}
    {f} @ {f}
    {f} + {s} * {r}
    torch.add({f}, {s}, alpha={r})
    torch.addcmul({f}, {s}, {s}, value={r})
    torch.lerp({f}, {s}, {r})
    torch.maximum({f}, {s})
    torch.where({b}, {f}, {s})
    torch.where({b}, {f}, {r})
    torch.where({f} > {s}, {f}, {s})
    {f}.masked_fill({b}, {r})
    {f}.clamp(min={r})
    {f}.rsqrt()
    {f}.abs().sqrt()
    {f}.log1p()
    {f}.floor()
    {f}.round()
    {f}.sign()
    {f}.erf()
    {f}.reciprocal()
    {f}.trunc()
    {f}.frac()
    {f}.atan2({s})
    {f}.hypot({s})
    {f}.nan_to_num()
    {f}.detach()
    {f}.clone()
    {f}.contiguous()
    torch.zeros_like({f})
    torch.ones_like({f}, dtype=torch.float32)
    torch.full_like({f}, {r})
    torch.zeros({n}, 3)
    torch.ones({n}, 3).mul({r})
    torch.eye(3)
    torch.tensor([0.5, {r}, 1.0])
    torch.tensor({r}, dtype=torch.float32)
    torch.linspace(-1, 1, {n})
    {f}.new_zeros({n}, 3)
    {f}.new_full((3,), {r})
""")
add("""
    F.leaky_relu({f}, {r})
    F.elu({f})
    F.softplus({f}, beta=2)
    F.hardswish({f})
    F.mish({f})
    F.log_softmax({f}, {d})
    F.softmin({f}, {d})
    F.normalize({f}, dim={d})
    F.layer_norm({f3}, (3,))
    F.layer_norm({f3}, (3,), self.l.bias, None)
    F.linear({f3}, self.l.weight)
    F.linear({f3}, {f3})
    F.dropout({f}, 0.0, True)
    F.dropout({f}, 0.5, False)
    F.dropout({f}, 1.0, True)
    F.mse_loss({f}, {s})
    F.smooth_l1_loss({f}, {s}, reduction="none")
    F.huber_loss({f}, {s})
    F.l1_loss({f}, {s}, reduction="sum")
    F.binary_cross_entropy_with_logits({f}, {s}.sigmoid())
    F.cross_entropy({f3}, {i})
    F.nll_loss({f3}.log_softmax(-1), {i}, reduction="none")
    F.kl_div({f}.log_softmax(-1), {s}.softmax(-1), reduction="sum")
    F.cosine_similarity({f}, {s}, dim={d})
    F.pairwise_distance({f}, {s})
    F.pad({f}, (1, 0))
    F.pad({f}, (0, 1), value={r})
    F.pad({f}, (-1, 1))
    F.one_hot({i}, 4).float()
    F.embedding({i}, {m})
    F.embedding({i}, self.l.weight)
    F.scaled_dot_product_attention({f3}, {f3}, {f3})
    F.avg_pool1d({f}, 2, 1)
    F.max_pool1d({f}, 2, 1)
    F.interpolate({f}[None, None], size=({n}, 4), mode="bilinear")
    F.interpolate({f}[None, None], scale_factor=2.0, mode="nearest")
    F.adaptive_avg_pool1d({f}, 2)
    F.unfold({f}[None, None], 2)
    F.conv1d({f}, self.l.weight[:, :, None])
    F.glu({f}, {d})
    F.relu6({f} * 3)
    F.threshold({f}, 0.1, {r})
    F.rms_norm({f3}, (3,))
""")
add("""
    {f}.sum()
    {f}.sum({d})
    {f}.sum({d}, keepdim=True)
    {f}.mean({d})
    {f}.mean()
    {f}.amax({d})
    {f}.amin({d}, keepdim=True)
    {f}.max({d}).values
    {f}.min()
    {f}.max()
    {f}.median()
    {f}.prod({d})
    {f}.var({d})
    {f}.std()
    {f}.norm()
    {f}.norm(dim={d}, p=1)
    {f}.logsumexp({d})
    {f}.cumsum({d})
    {f}.cumprod({d})
    {f}.nansum()
    {f}.sum(dtype=torch.float64)
    {f}.sum() / {f}.shape[0]
    {f}.mean() * {n}
    torch.linalg.vector_norm({f})
    torch.linalg.norm({m})
    {f}.sort({d}).values
    {f}.topk(1).values
    {f}.cummax({d}).values
    {f}.logcumsumexp({d})
    {f}.count_nonzero().float()
    {f}.dot({f})
""")
add("""
    {f}.t()
    {f}.transpose(0, -1)
    {f}.mT
    {f}.flatten()
    {f}.reshape(-1)
    {f}.reshape({f}.shape[0], -1)
    {f}.view(-1, 3)
    {f}.view(3, -1)
    {f}.view_as({s})
    {f}.unsqueeze({d})
    {f}.squeeze({d})
    {f}.squeeze()
    {f}.expand({n}, *{f}.shape)
    {f}.expand_as({s})
    {f}.permute(1, 0)
    {f}.movedim(0, -1)
    {f}.flip({d})
    {f}.roll(1, {d})
    {f}.repeat(2, 1)
    {f}.repeat_interleave(2, {d})
    {f}.tile(2)
    {f}.narrow({d}, 0, 1)
    {f}.select({d}, 0)
    {f}.unbind({d})[0]
    {f}.chunk(2, {d})[0]
    {f}.split(1, {d})[-1]
    {f}.diagonal()
    {f}.diag()
    {f}.tril()
    {f}.triu(1)
    {f}.unfold(0, 2, 1)
    {f}.as_strided((2, 2), (1, 1))
    {f}[0]
    {f}[-1]
    {f}[:, 0]
    {f}[1:]
    {f}[:-1]
    {f}[::2]
    {f}[..., :2]
    {f}[:, None]
    {f}[{i}]
    {f}[{b}]
    {f}[:, [0, 2]]
    {f}[{i}, 0]
    {f}[torch.arange({f}.shape[0])]
    {f}[: {n}]
    {f}[{f}[:, 0] > 0]
    torch.cat([{f}, {s}])
    torch.cat([{f}, {s}], {d})
    torch.stack([{f}, {s}])
    torch.stack([{f}, {s}], -1)
    torch.cat([{f}, {f}.new_ones(1, 3)])
    torch.einsum("ij,kj->ik", {m}, {m})
    torch.einsum("ij,ij->", {m}, {m})
    torch.einsum("i,j->ij", {f}, {f})
    torch.outer({f}, {f})
    torch.baddbmm({f}, {f}, {f})
    torch.addmm({f}, {m}, {m}, beta={r})
    torch.bmm({f}, {f})
    torch.cdist({m}, {m})
    torch.broadcast_to({f}, ({n}, *{f}.shape))
    torch.meshgrid({f}, {f}, indexing="ij")[0]
    torch.tensordot({m}, {m}, dims=([1], [1]))
    torch.kron({m}, {m})
    torch.trace({m})
    torch.linalg.det({f3} @ {f3}.mT)
    {f}.gather({d}, {f}.argsort({d}))
    {f}.take_along_dim({f}.argmax(-1, keepdim=True), -1)
    {f}.index_select(0, {i})
    {f}.scatter_add(0, {i}, {f})
    {f}.index_add(0, {i}, {f}, alpha={r})
    {f}.index_fill(0, {i}, {r})
    {f}.scatter({d}, {f}.argmax({d}, keepdim=True), {r})
    {f}.masked_select({b})
    {f}.masked_scatter({b}, {s})
    {f}.take({i})
    {f}.put({i}, {f})
    torch.vmap(lambda a: a * a.sum())({f})
    torch.func.grad(lambda a: (a * a * a).sum())({f})
""")
add("""
    {f}.double()
    {f}.float()
    {f}.bfloat16()
    {f}.half()
    {f}.to({f}.dtype)
    {f}.to(torch.float64)
    {f}.type_as({f})
    {f}.long()
    {f}.int()
    {f} > {s}
    {f} >= {r}
    {f} == {s}
    {f}.isfinite()
    {f}.bool()
    ~{b}
    {b} & {b}
    {b}.any({d})
    {b}.all()
    {b}.sum({d})
    {b}.float()
    {b} * {f}
    {b}.logical_xor({f})
    {i} + {n}
    {i} * {f}
    {i} // 2
    {i} % 3
    {i}.float()
    {i} / {n}
    {i}.clamp(0, 2)
    {i} == {n}
    {i}.cumsum(0)
    {i}.max()
    {i}.bincount()
    torch.arange({n})
    torch.arange({f}.shape[0]) % 3
    torch.arange(3.0)
    torch.arange(0, {n}, 2, dtype=torch.float32)
    {f}.argmax({d})
    {f}.argmin()
    {f}.argsort({d})
    {f}.sort({d}).indices
    {f}.topk(2).indices
    {f}.nonzero()
    {f}.searchsorted({f})
    {f}.unique()
    torch.bucketize({f}, torch.tensor([-1.0, 0.0, 1.0]))
    torch.isin({i}, {i})
    torch.triu(torch.ones(3, 3, dtype=torch.bool), 1)
    torch.scalar_tensor({n})
    torch.tensor({f}.shape)
    torch.complex({f}, {s}).abs()
    torch.view_as_real(torch.view_as_complex({f}.float()[..., :2].contiguous()))
    torch.fft.rfft({f}.float()).abs()
""")
# Of Python: numbers read from tensors, comprehensions, classes of autograd in the text's head.
add("""
    {f} * {f}.sum().item()
    {f} * len({f})
    {f} + float({f}.sum())
    {f} * int({i}.max())
    {f}[int({f}.argmax()) % 2]
    torch.tensor({f}.tolist())
    torch.stack([row * 2 for row in {f}])
    torch.cat([a for a in {f}.split(1)])
    sum([{f}, {s}])
    max({f}.sum(), {f}.mean())
    {f}.sum() if {f}.dim() > 1 else {f}
    {f} * {r} if {n} > 2 else {f} + {r}
    {f}.mul({n}) if {f}.sum() > 0 else {f}.add({n})
    (lambda a: a * a)({f})
    checkpoint(lambda a: a.sin() * self.l.bias.sum(), {f}, use_reentrant=False)
    checkpoint(self.l, {f3}, use_reentrant=False)
    checkpoint(self.l, {f3}, use_reentrant=True)
    Twice.apply({f})
    Twice.apply({f} + 0)
    Straight.apply({f})
    Halves.apply({f}, {s})[0]
    Halves.apply({f}, {f})[1]
    Scaled.apply({f}, {r})
    functools.partial(torch.mul, {f})({r})
    functools.reduce(torch.mul, [{f}, {s}])
    getattr({f}, "tanh")()
    torch.autograd.grad({f}.square().sum(), {f})[0]
    torch.autograd.grad({f}.square().sum(), {f}, create_graph=True)[0]
    {f}.detach().requires_grad_()
    {f}.data * 2
    {f} * (1 if {f}.requires_grad else 2)
    {f} * (2 if {f}.is_contiguous() else 3)
    {f} * {f}.stride(0)
    {f} * (2 if {f}.is_leaf else 3)
    {f} * (2 if torch.is_grad_enabled() else 3)
    {f} * (2 if {f}.dtype == torch.float32 else 3)
    {f} * float(f"{{f}.sum() > 0}" == "True")
    {f} * math.sqrt({f}.shape[-1])
""")
