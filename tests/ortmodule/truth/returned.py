"""What forward returns and what it is given: containers, numbers, aliases, the module's own."""

import collections
import dataclasses

import torch

from .table import Base, Case, case


@case(captured=True)
def a_tuple_and_a_dict():
    return Case(Base(lambda s, x: (s.l(x), {"k": s.k(x), "n": x.shape[0], "t": "text"})))


@case(captured=True)
def an_input_itself():
    return Case(Base(lambda s, x: (x, s.l(x))))


@case(captured=True)
def a_view_of_an_input():
    return Case(Base(lambda s, x: (x.t(), s.l(x))))


@case(captured=True)
def a_parameter_alone():
    return Case(Base(lambda s, x: s.l.weight))


@case(captured=True)
def a_buffer():
    return Case(Base(lambda s, x: (s.l(x), s.n)))


@case(captured=True)
def the_same_tensor_twice():
    def body(s, x):
        h = s.l(x)
        return h, h

    return Case(Base(body))


@case(captured=True)
def a_named_tuple():
    Pair = collections.namedtuple("Pair", "a b")
    return Case(Base(lambda s, x: Pair(s.l(x), s.k(x))))


@dataclasses.dataclass
class Result:
    a: torch.Tensor
    b: int = 3


@case(captured=True)
def a_dataclass():
    return Case(Base(lambda s, x: Result(s.l(x))), call=lambda model, x, i: vars(model(x)))


@case(captured=True)
def numbers_made_of_sizes():
    def call(model, x, i):
        return model(x[: 3 + i])

    return Case(Base(lambda s, x: (s.l(x), x.shape[0] * 2, x.numel())), call=call)


@case(captured=True)
def a_number_that_changes():
    return Case(Base(lambda s, x, a: s.l(x) * a), call=lambda model, x, i: model(x, 1.0 + i))


@case(captured=True)
def a_flag_that_changes():
    def body(s, x, on):
        return s.l(x) if on else s.k(x)

    return Case(Base(body), call=lambda model, x, i: model(x, on=i != 1))


@case(captured=True)
def keywords_and_defaults():
    def body(s, x, scale=2.0, *, shift=1.0):
        return s.l(x) * scale + shift

    return Case(Base(body), call=lambda model, x, i: model(x, shift=2.0) if i else model(x))


@case(captured=True)
def the_modules_own_buffer():
    def body(s, x, y):
        return s.l(x) + y

    module = Base(body)
    return Case(module, call=lambda model, x, i: model(x, module.n if i == 1 else x.detach()))


@case(captured=True)
def the_modules_own_parameter():
    def body(s, w, x):
        return s.l(x) @ w

    module = Base(body)
    return Case(
        module, call=lambda model, x, i: model(module.l.weight if i != 1 else x.detach()[:3], x)
    )


@case(captured=False)
def a_buffer_given_that_forward_writes():
    def body(s, x):
        s.n.add_(1)
        return x * 2 + s.k.bias

    module = Base(body)
    return Case(module, call=lambda model, x, i: model(module.n.reshape(1).expand(3)))


@case(captured=True)
def a_method_that_calls_the_module():
    class Held(Base):
        def loss(self, x):
            return self(x).square().mean()

    return Case(Held(lambda s, x: s.l(x)), call=lambda model, x, i: model.loss(x))


@case(captured=False)
def the_modules_own_list():
    def call(model, x, i):
        result = model(x)
        result[1].append(i)
        return result

    module = Base(lambda s, x: (s.l(x), s.found), found=[])
    return Case(module, call=call, state=lambda: list(module.found))


@case(captured=True)
def the_callers_own_dict():
    def call(model, x, i):
        given = {"x": x}
        result = model(given)
        result["mine"] = given is result
        return given

    return Case(Base(lambda s, d: d if s.l(d["x"]) is not None else None), call=call)


@case(captured=True)
def a_named_tuple_with_a_new_of_its_own():
    class Pair(collections.namedtuple("Pair", "a b")):
        def __new__(cls, a, b):
            return super().__new__(cls, a, b + 1)

    def call(model, x, i):
        pair = model(x)
        return type(pair) is Pair, tuple(pair)

    return Case(Base(lambda s, x: Pair(s.l(x), 3)), call=call)


@case(captured=True)
def a_dataclass_with_an_attribute_added():
    @dataclasses.dataclass
    class Found:
        h: torch.Tensor

        def __post_init__(self):
            self.twice = self.h * 2

    def call(model, x, i):
        found = model(x)
        return found.h, found.twice

    return Case(Base(lambda s, x: Found(s.l(x))), call=call)


@case(captured=True, partly=True)
def a_number_of_thirty_values():
    def call(model, x, i):
        return [model(x, k / 30) for k in range(10 * i, 10 * i + 10)]

    return Case(Base(lambda s, x, a: s.l(x) * (a if a > 0.5 else -a)), call=call)


@case(captured=True)
def a_number_in_a_dict_of_thirty_values():
    def call(model, x, i):
        return [model(x, {"a": [k], "on": True}) for k in range(10 * i, 10 * i + 10)]

    return Case(Base(lambda s, x, c: s.l(x) * c["a"][0] if c["on"] else x), call=call)


def _kinship(outputs, x):
    """Which outputs are the input itself, views of it, or share its memory."""
    return [
        (t is x, t._base is x, t.is_leaf, t.data_ptr() == x.data_ptr(), t.detach().clone())
        for t in outputs
    ]


@case(captured=True)
def views_that_change_nothing():
    def body(s, x):
        views = x.view(x.shape), x[:], x.view_as(x), x.expand_as(x), x.transpose(0, 0), x.squeeze()
        selves = x.contiguous(), x.float(), x.flatten(0, 0), torch.atleast_2d(x)
        return [*views, *selves, x.reshape_as(x), x.reshape_as(s.l.weight[0].expand(5, 3)), x.T.T]

    return Case(Base(body), call=lambda model, x, i: _kinship(model(x), x))


@case(captured=True)
def a_value_and_a_view_of_all_of_it():
    def body(s, x):
        h = s.l(x)
        return h, h.view(h.shape)

    def call(model, x, i):
        h, view = model(x)
        with torch.no_grad():
            h.zero_()
        return h is view, view.detach().clone()

    return Case(Base(body), call=call)


@case(captured=False)
def an_input_through_an_operator_of_many():
    return Case(Base(lambda s, x: torch.broadcast_tensors(x, s.n)[0]))


@case(captured=False)
def an_input_through_einsum():
    return Case(Base(lambda s, x: torch.einsum("ij->ji", x)))


@case(captured=True)
def a_tensor_that_was_given_an_attribute():
    def body(s, x):
        y = s.l(x)
        y.rows = x.shape[0]
        return y

    def call(model, x, i):
        y = model(x[: 3 + i % 2])
        return y, y.rows

    return Case(Base(body), call=call)


@case(captured=False)
def whether_a_list_has_a_tensor():
    def body(s, x):
        y = s.l(x * 2 if x.sum() > 1e9 else x)
        ys = [y, s.k(y)]
        return y, y in ys, y in [], y not in ys

    return Case(Base(body))


@case(captured=True)
def dropouts_that_are_off():
    def call(model, x, i):
        return [(y is x, y.is_leaf) for y in model(x)]

    def body(s, x):
        off = torch.nn.functional
        return (
            off.dropout(x, 0.5, False),
            off.alpha_dropout(x, 0.5, False),
            (off.feature_alpha_dropout(x, 0.5, False)),
        )

    return Case(Base(body), call=call)


@case(captured=True)
def the_data_of_a_result():
    def body(s, x):
        y = s.l(x)
        return y, y.data * 2, s.l.weight.data

    return Case(Base(body))
