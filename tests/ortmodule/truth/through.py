"""Writes through views, into out=, to memory of another size, and to parameters."""

import torch

from .table import Base, Case, case


def _add(name, captured, body):
    def factory():
        return Case(Base(body))

    factory.__name__, factory.__module__ = name, __name__
    case(captured, partly=True)(factory)


def _later(view):
    """A view that is read after its base was written to."""

    def act(y):
        v = view(y)
        y.mul_(2)
        return v * 1

    return act


def _of_layer(act):
    def body(s, x):
        y = s.l(x).clone() * 1
        found = act(y)
        return y, y * y, found

    return body


def _of_complex(act):
    def body(s, x):
        y = torch.complex(s.l(x), s.k(x)) * 1
        found = act(y)
        return torch.view_as_real(y) * 2, found.abs()

    return body


VIEWS = {
    "diagonal": lambda y: y.diagonal(1).mul_(2),
    "diagonal_filled": lambda y: y.diagonal().zero_(),
    "diagonal_of_linalg": lambda y: torch.linalg.diagonal(y).mul_(3),
    "unfold": lambda y: y.unfold(0, 2, 2).mul_(2),
    "unfold_with_gaps": lambda y: y.unfold(0, 1, 3).mul_(2),
    "movedim": lambda y: y.movedim(0, 1).add_(torch.arange(5.0)),
    "moveaxis": lambda y: y.moveaxis((1, 0), (0, 1))[1].mul_(3),
    "swapaxes": lambda y: y.swapaxes(0, 1)[0].add_(1),
    "swapaxes_in_place": lambda y: y.swapaxes_(0, 1).mul_(2),
    "adjoint": lambda y: y.adjoint()[0].mul_(2),
    "matrices": lambda y: y[None].mT[0, 1].mul_(2),
    "numpys_T": lambda y: y.T[1:].mul_(2),
    "as_strided_in_place": lambda y: y.view(5, 3).as_strided_((2, 3), (6, 1)).mul_(2),
    "expand_of_one": lambda y: y[0].expand_as(y[:1]).add_(1),
    "hsplit": lambda y: y.hsplit([1])[1].mul_(2),
    "tensor_split": lambda y: y.tensor_split([1, 2], 0)[2].mul_(2),
    "as_strided": lambda y: y.as_strided((2, 2), (6, 2), 1).mul_(2),
    "views_of_views": lambda y: y.movedim(0, 1).diagonal()[1:].mul_(2),
    "windows_of_a_view": lambda y: y.t().unfold(1, 2, 2)[..., 1].add_(2),
    "fill_diagonal": lambda y: y.fill_diagonal_(3.0).t(),
    "fill_diagonal_wrapped": lambda y: y.fill_diagonal_(3.0, wrap=True)[:2],
    "read_diagonal": _later(lambda y: y.diagonal()),
    "read_windows": _later(lambda y: y.unfold(0, 2, 1)),
    "read_swapped": _later(lambda y: y.swapdims(0, 1)),
    "read_strided": _later(lambda y: y.as_strided((2, 3), (1, 1))),
}
OF_COMPLEX = {
    "real": lambda y: y.real.mul_(2),
    "imag": lambda y: y.imag.add_(1),
    "conj": lambda y: y.conj().mul_(1j),
    "hermitian": lambda y: y.H[0].mul_(2j),
    "imag_of_conj": lambda y: y.conj().imag.mul_(2),
    "as_real": lambda y: torch.view_as_real(y)[..., 0].add_(1),
    "diagonal_of_complex": lambda y: y.diagonal().mul_(2j),
    "stepped": lambda y: y[1::2].mul_(2j),
    "read_conj": _later(lambda y: y.conj()),
    "read_imag": _later(lambda y: y.imag),
}
# Eager raises, or its result is that of some order.
LEFT_TO_EAGER = {
    "what_it_reads": lambda y: y[1:].add_(y[:-1]),
    "its_own_row": lambda y: y.diagonal().copy_(y[0].detach()),
    "bytes_of_what_has_a_gradient": lambda y: y.view(torch.int32).bitwise_and_(-65536),
    "windows_that_overlap": lambda y: y.unfold(0, 2, 1).mul_(2),
    "one_row_for_all": lambda y: y[:1].expand(5, 3).add_(1),
    "a_product_with_itself": lambda y: y[:3].detach().addmm_(y[:3].detach(), torch.ones(3, 3)),
    "strides_that_overlap": lambda y: y.as_strided((2, 3), (1, 1)).mul_(2),
}
for _name, _act in VIEWS.items():
    _add(_name, True, _of_layer(_act))
for _name, _act in OF_COMPLEX.items():
    _add(_name, True, _of_complex(_act))
for _name, _act in LEFT_TO_EAGER.items():
    _add(_name, False, _of_layer(_act))


def halves_of_a_row(y):
    """No element is in both."""
    y[:, :1].add_(y[:, 2:])
    return y[:, 0::2].mul_(y.detach()[:, 1:2])


_add("halves_of_a_row", True, lambda s, x: s.l(x)[:, :2] + halves_of_a_row(x.detach() * 1))


@case(captured=True, partly=True)
def as_complex():
    def body(s, x):
        y = torch.stack([s.l(x), s.k(x)], -1) * 1
        torch.view_as_complex(y).mul_(2j)
        return y

    return Case(Base(body))


@case(captured=True, partly=True)
def bytes_of_another_dtype():
    def body(s, x):
        y = x.detach() * 1
        y.view(torch.int32).bitwise_and_(-65536)
        return s.l(x) + y

    return Case(Base(body))


E = torch.empty
OUTS = {
    "out": lambda x: torch.mul(x, 2, out=torch.zeros(5, 3)),
    "out_of_no_size": lambda x: torch.sum(x, 0, out=E(0)),
    "out_through_a_view": lambda x: torch.mul(x, 2, out=torch.zeros(3, 5).t()),
    "out_of_rows": lambda x: (y := torch.zeros(7, 3), torch.mul(x, 2, out=y[1:6]), y[:5])[2],
    "two_outs": lambda x: torch.sort(x, 1, out=(E(0), E(0, dtype=torch.long)))[0],
    "out_that_is_read": lambda x: (y := x * 1, torch.exp(y, out=y))[1],
    "out_of_a_product": lambda x: torch.addmm(x, x, torch.ones(3, 3), out=E(0)),
    "grown": lambda x: (x * 2).resize_(6, 3)[:5],
    "grown_and_filled": lambda x: (x * 2).resize_(7, 3).fill_(3.0)[:5],
    "shrunk": lambda x: (x * 2).resize_(2, 3).sum(0),
    "resized_as_it_lies": lambda x: (x.t() * 2).resize_(2, 3).sum(0),
    "resized_to_its_size": lambda x: (x.t() * 2).resize_(3, 5).t(),
    "resized_as": lambda x: E(0).resize_as_(x).fill_(1.0),
}
OUTS_OF_EAGER = {
    "out_of_another_size": lambda x: torch.mul(x, 2, out=torch.zeros(3)),
    "out_of_another_dtype": lambda x: torch.add(x, 1, out=torch.zeros(5, 3, dtype=torch.float64)),
    "out_of_what_it_reads": lambda x: (y := x * 1, torch.add(y[:4], 1, out=y[1:]), y)[2],
    "out_that_needs_a_gradient": lambda x: torch.mul(x.requires_grad_(), 2, out=torch.zeros(5, 3)),
    "a_product_into_what_it_reads": lambda x: (y := x[:3] * 1, torch.mm(y, y, out=y))[1][:1],
    "shrunk_and_grown": lambda x: (x * 2).resize_(2, 3).resize_(5, 3),
    "a_viewed_tensor_resized": lambda x: (y := x * 2, v := y[0], y.resize_(2, 3), v * 1)[3],
}
for _name, _act in (OUTS | OUTS_OF_EAGER).items():
    _add(_name, _name in OUTS, lambda s, x, act=_act: s.l(x) + act(x.detach()))


@case(captured=True, partly=True)
def out_under_no_grad():
    def body(s, x):
        with torch.no_grad():
            z = torch.mul(s.k(x), 2, out=torch.empty(0))
        return s.l(x) + z, z

    return Case(Base(body))


@case(captured=True)
def out_is_a_buffer():
    def body(s, x):
        return s.l(x) + torch.add(s.n, 1, out=s.n)

    return Case(Base(body))


def _without(act):
    def body(s, x):
        with torch.no_grad():
            act(s)
        return s.l(x) + s.k(x).tanh()

    return body


def _average(s):
    for mean, of in zip(s.k.parameters(), s.l.parameters(), strict=True):
        mean.copy_(0.9 * mean + 0.1 * of)


def _data_of_data(s, x):
    weight = s.l.weight.data
    weight.mul_(0.5)
    return s.l(x) * weight[0]


def _seen_before(s, x):
    turned = s.l.weight.t()
    with torch.no_grad():
        s.l.weight.mul_(0.5)
    return s.l(x) * turned[0]


def _bias_used_before(s, x):
    y = s.l(x)
    with torch.no_grad():
        s.l.bias.mul_(0.5)
    return y + s.l(x), s.l.bias


def _moved_by_an_output(s, x):
    y = s.l(x)
    with torch.no_grad():
        s.k.weight.add_(y[0], alpha=0.01)
    return y + s.k(x)


PARAMETERS = {
    "average": _without(_average),
    "average_by_lerp": _without(lambda s: s.k.weight.lerp_(s.l.weight, 0.1)),
    "clamped": _without(lambda s: s.l.weight.clamp_(-0.1, 0.1)),
    "clamped_by_data": lambda s, x: (s.l.weight.data.clamp_(-0.1, 0.1), s.l(x))[1],
    "averaged_by_data": lambda s, x: (s.k.weight.data.lerp_(s.l.weight.data, 0.1), s.k(x))[1],
    "copied_by_data": lambda s, x: (s.l.weight.data.copy_(s.k.weight.data), s.l(x) + s.k(x))[1],
    "a_row": _without(lambda s: s.l.weight[0].zero_()),
    "the_diagonal": _without(lambda s: s.l.weight.fill_diagonal_(1.0)),
    "twice": _without(lambda s: s.l.weight.mul_(0.5).add_(0.1)),
    "by_out": _without(lambda s: torch.mul(s.l.weight, 0.5, out=s.l.weight)),
    "into_a_buffer_too": _without(lambda s: s.n.add_(s.l.weight.mul_(0.9).sum())),
    "data_of_data": _data_of_data,
    "seen_before": _seen_before,
    "bias_used_before": _bias_used_before,
    "moved_by_an_output": _moved_by_an_output,
    "data_read": lambda s, x: s.l(x.data) + x.data * s.l.weight.data[0],
    "an_argument": lambda s, x: (x.data.clamp_(-1, 1), s.l(x), x)[1:],
}
PARAMETERS_OF_EAGER = {
    "with_gradients": lambda s, x: (s.l.weight.mul_(0.5), s.l(x))[1],
    "what_its_backward_reads": lambda s, x: (y := s.l(x), s.l.weight.data.mul_(0.5), y)[2],
    "data_of_what_has_a_gradient": lambda s, x: (y := s.l(x) * 1, y.data.clamp_(0, 1), y * y)[2],
}
for _name, _body in (PARAMETERS | PARAMETERS_OF_EAGER).items():
    _add(f"parameter_{_name}", _name in PARAMETERS, _body)


def _other_memory(tensor_of):
    """`x.data = y`, by which a tensor takes the other's memory."""

    def body(s, x):
        tensor = tensor_of(s, x)
        tensor.data = tensor.data * 0.5
        return s.l(x) * tensor.sum()

    return body


_add("memory_of_a_parameter", False, _other_memory(lambda s, x: s.l.weight))
_add("memory_of_a_buffer", False, _other_memory(lambda s, x: s.n.fill_(1.0)))
_add("memory_of_its_own", False, _other_memory(lambda s, x: torch.ones(5, 3)))


@case(captured=True, partly=True)
def parameter_of_a_frozen_layer():
    def body(s, x):
        s.k.weight.mul_(0.9)
        return s.k(x) + s.l(x)

    found = Base(body)
    found.k.requires_grad_(False)
    return Case(found)
