"""Where what forward returns lies in memory: transposed, channels last, with gaps, expanded."""

import torch
from torch import nn

from .table import Base, Case, case


@case(captured=True)
def a_transposed_output():
    return Case(Base(lambda s, x: s.l(x).t()))


@case(captured=True)
def computed_from_transposed():
    return Case(Base(lambda s, x: torch.relu(s.l(x).t()) + 1))


@case(captured=True)
def transposed_and_what_is_computed_from_it():
    def body(s, x):
        h = torch.tanh(s.l(x)).t()
        return h, s.k(h.t())

    return Case(Base(body))


@case(captured=True)
def permuted_heads():
    return Case(Base(lambda s, x: s.l(x).view(5, 3, 1).expand(5, 3, 2).permute(2, 0, 1) * 2))


@case(captured=True)
def of_a_transposed_input():
    def call(model, x, i):
        return model(x.detach().reshape(3, 5).t() if i != 1 else x)

    return Case(Base(lambda s, x: x * s.l.bias[0]), call=call)


@case(captured=True)
def channels_last():
    def body(s, x):
        image = x.reshape(1, 1, 5, 3).expand(2, 3, 5, 3)
        return s.c(image.contiguous(memory_format=torch.channels_last))

    return Case(Base(body, c=nn.Conv2d(3, 4, 3, padding=1)))


@case(captured=True)
def weights_in_channels_last():
    def body(s, x):
        return s.c(x.reshape(1, 1, 5, 3).expand(2, 3, 5, 3))

    module = Base(body, c=nn.Conv2d(3, 4, 3, padding=1))
    return Case(module.to(memory_format=torch.channels_last))


@case(captured=True)
def a_recurrent_layer_with_batches_first():
    module = Base(lambda s, x: s.r(x[None].expand(2, 5, 3))[0], r=nn.LSTM(3, 4, batch_first=True))
    return Case(module)


@case(captured=True)
def a_column():
    return Case(Base(lambda s, x: s.l(x)[:, 0]))


@case(captured=True)
def every_second_row():
    return Case(Base(lambda s, x: s.l(x)[::2]))


@case(captured=True)
def a_diagonal():
    return Case(Base(lambda s, x: torch.diagonal(s.l(x))))


@case(captured=True)
def expanded():
    return Case(Base(lambda s, x: s.l(x)[:1].expand(4, 3)))


@case(captured=True)
def expanded_from_a_number():
    return Case(Base(lambda s, x: s.l(x).sum().expand(4, 3)))


@case(captured=True)
def a_copy_that_keeps_the_order():
    return Case(Base(lambda s, x: (s.l(x).t().clone(), s.k(x).t().contiguous())))


@case(captured=True)
def a_buffer_set_to_what_is_transposed():
    def body(s, x):
        s.b = torch.exp(s.b * 0.5)
        return s.l(x) + s.b.sum()

    module = Base(body)
    module.register_buffer("b", torch.arange(6.0).reshape(2, 3).t())
    return Case(module)


@case(captured=True)
def transposed_in_place():
    return Case(Base(lambda s, x: s.l(x).t_()))


@case(captured=False)
def an_input_transposed_in_place():
    return Case(Base(lambda s, x: s.l(x.t_().t())), call=lambda model, x, i: model(x.detach()))


@case(captured=True)
def a_view_and_its_transposed_base():
    def body(s, x):
        h = torch.sigmoid(s.l(x).t())
        return h, h[0]

    return Case(Base(body))


@case(captured=True)
def a_hook_on_a_transposed_output():
    def call(model, x, i):
        y, h = model(x)
        h.register_hook(lambda gradient: gradient * 2)
        h.retain_grad()
        (y.sum() + (h * h).sum()).backward()
        return y.detach(), h.grad.clone()

    def body(s, x):
        h = torch.tanh(s.l(x)).t()
        h = h * 1.5
        return s.k(h.t()), h

    return Case(Base(body), call=call)


@case(captured=True)
def strided_from_what_lies_whole():
    return Case(Base(lambda s, x: s.l(x + 1).as_strided((2, 4), (3, 2), 1).tanh()))


@case(captured=True)
def strided_windows_of_an_input():
    return Case(Base(lambda s, x: s.l(x.as_strided((2, 2, 3), (3, 6, 1)))))


@case(captured=True, partly=True)
def written_through_strides():
    def body(s, x):
        y = x + 1
        y.as_strided((3,), (4,)).zero_()
        return s.l(y), torch.as_strided_scatter(y * 2, s.l(x)[0], (3,), (4,))

    return Case(Base(body))


@case(captured=True)
def strided_from_what_is_transposed():
    return Case(Base(lambda s, x: s.l(x).t().as_strided((2, 2), (1, 2)) * 1))


@case(captured=True)
def strided_from_a_transposed_input():
    def call(model, x, i):
        return model(x.t().contiguous().t())

    return Case(Base(lambda s, x: (s.l(x), x.as_strided((2, 3), (2, 3)) * 2)), call=call)


@case(captured=True)
def written_through_strides_of_what_is_transposed():
    def body(s, x):
        y = (s.l(x) + 1).t()
        y.as_strided((3,), (3,)).zero_()
        return y * 2, y.t()

    return Case(Base(body))


@case(captured=False)
def strided_from_what_has_gaps():
    return Case(Base(lambda s, x: s.l(x)[:, :2].as_strided((2, 2), (1, 2)) * 1))


@case(captured=False)
def strided_beyond_a_part_of_an_input():
    def call(model, x, i):
        return model(x.detach()[1:3])

    return Case(Base(lambda s, x: s.l(x.as_strided((3, 3), (3, 1), 0))), call=call)


@case(captured=False)
def strided_beyond_its_elements():
    def call(model, x, i):
        return model(x.detach()[1:3])

    return Case(Base(lambda s, x: s.l(x.as_strided((3, 3), (3, 1)))), call=call)


@case(captured=False)
def written_by_places_that_overlap():
    def body(s, x):
        h = s.l(x)
        h.as_strided((2, 2), (1, 1)).mul_(2)
        return h

    return Case(Base(body))
