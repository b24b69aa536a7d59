"""What forward asks while it is captured, where a trace would answer otherwise."""

import math
import threading
import time

import torch
from torch import nn
from torch._higher_order_ops import map as map_of_torch
from torch._subclasses import FakeTensor

from .table import Base, Case, case


@case(captured=True)
def is_compiling():
    return Case(Base(lambda s, x: s.l(x) * (2.0 if torch.compiler.is_compiling() else 1.0)))


@case(captured=True)
def is_exporting():
    return Case(Base(lambda s, x: s.l(x) * (2.0 if torch.compiler.is_exporting() else 1.0)))


@case(captured=True)
def dynamo_is_compiling():
    return Case(Base(lambda s, x: s.l(x) * (2.0 if torch._dynamo.is_compiling() else 1.0)))


@case(captured=False)
def whether_a_tensor_is_fake():
    return Case(Base(lambda s, x: s.l(x) * (2.0 if isinstance(x, FakeTensor) else 1.0)))


@case(captured=False)
def whether_modes_are_active():
    active = torch._C._len_torch_dispatch_stack
    return Case(Base(lambda s, x: s.l(x) * (2.0 if torch._guards.detect_fake_mode() else 1.0)
                     + torch._C._len_torch_function_stack() + active()))  # fmt: skip


@case(captured=False)
def the_gradient_of_a_result():
    def body(s, x):
        y = s.l(x)
        return y * 2.0 if y.grad is None else y

    return Case(Base(body))


def compiled(x):
    return x * (2.0 if torch.compiler.is_compiling() else 1.0)


@case(captured=False)
def within_a_branch():
    return Case(Base(lambda s, x: torch.cond(x.sum() > 9, torch.sin, compiled, (s.l(x),))))


@case(captured=False)
def within_a_loop_by_name():
    asks = torch.compiler.is_compiling

    def body(s, x):
        return map_of_torch(lambda row: row * (2.0 if asks() else 1.0), s.l(x))

    return Case(Base(body))


@case(captured=True)
def the_answers_in_the_result():
    def body(s, x):
        asked = torch.compiler.is_compiling, torch.compiler.is_exporting, torch.jit.is_tracing
        of_fx = torch.fx._symbolic_trace.is_fx_tracing, torch._dynamo.is_compiling
        known = torch.onnx.is_in_onnx_export, torch.jit.is_scripting, torch._utils.is_compiling
        return s.l(x), [bool(ask()) for ask in (*asked, *of_fx, *known)]

    return Case(Base(body))


@case(captured=False)
def the_type_of_a_tensor():
    return Case(Base(lambda s, x: s.l(x) * (2.0 if type(x) is torch.Tensor else 1.0)))


@case(captured=False)
def the_class_of_a_tensor():
    return Case(Base(lambda s, x: s.l(x) * (2.0 if x.__class__ is torch.Tensor else 1.0)))


@case(captured=True)
def the_type_of_a_size():
    return Case(Base(lambda s, x: s.l(x) * (2.0 if isinstance(x.shape[0], int) else 1.0)))


@case(captured=True)
def the_text_of_a_size():
    return Case(Base(lambda s, x: s.l(x) * len(f"{x.shape[0]}")))


@case(captured=True)
def the_text_of_a_shape():
    return Case(Base(lambda s, x: s.l(x) * len(str(x.shape))))


@case(captured=True)
def a_size_as_a_key():
    return Case(Base(lambda s, x: s.l(x) * {5: 2.0}[x.shape[0]]))


@case(captured=True)
def strides():
    def call(model, x, i):
        return model(x if i != 1 else x.t().contiguous().t())

    return Case(Base(lambda s, x: s.l(x) * x.stride(0)), call=call)


@case(captured=True)
def contiguity():
    def call(model, x, i):
        return model(x if i != 1 else x.t().contiguous().t())

    return Case(Base(lambda s, x: s.l(x) * (2.0 if x.is_contiguous() else 1.0)), call=call)


@case(captured=False)
def is_leaf():
    def call(model, x, i):
        return model(x * 1 if i == 2 else x)

    return Case(Base(lambda s, x: s.l(x) * (2.0 if x.is_leaf else 1.0)), call=call)


@case(captured=False)
def base_of_a_view():
    def call(model, x, i):
        return model(x[:] if i == 2 else x)

    return Case(Base(lambda s, x: s.l(x) * (2.0 if x._base is None else 1.0)), call=call)


@case(captured=False)
def grad_fn():
    def body(s, x):
        h = s.l(x)
        return h * (2.0 if "Addmm" in type(h.grad_fn).__name__ else 1.0)

    return Case(Base(body))


@case(captured=False)
def version():
    return Case(Base(lambda s, x: s.l(x) * (1.0 + x._version)))


@case(captured=False)
def attribute_of_an_input():
    def call(model, x, i):
        x.mark = float(i)
        return model(x)

    return Case(Base(lambda s, x: s.l(x) * getattr(x, "mark", 9.0)), call=call)


@case(captured=False)
def attribute_of_a_parameter():
    def before(m, i):
        m.l.weight.mark = float(i)

    return Case(Base(lambda s, x: s.l(x) * getattr(s.l.weight, "mark", 9.0)), before=before)


@case(captured=False)
def the_thread():
    def body(s, x):
        return s.l(x) * (1.0 if threading.current_thread() is threading.main_thread() else 2.0)

    return Case(Base(body))


@case(captured=False)
def the_time():
    return Case(Base(lambda s, x: s.l(x) * (0.0 if time.time() < 0 else 1.0)))


@case(captured=False)
def the_value_of_a_tensor():
    return Case(Base(lambda s, x: s.l(x) * (2.0 if x.sum() > 0 else 1.0)))


@case(captured=True)
def rank_and_dtype():
    def call(model, x, i):
        return model(x[None] if i == 1 else x)

    return Case(
        Base(lambda s, x: s.l(x) * x.dim() * (2.0 if x.dtype.is_floating_point else 1.0)), call=call
    )


@case(captured=True)
def the_type_of_the_module():
    return Case(Base(lambda self, x: self.l(x) * len(type(self).__name__)))


def _encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True).eval()


def _padded(model, x, i):
    """The second sequence is padding alone, where torch's own operator gives nan."""
    sequences = torch.linspace(-1, 1, 24).reshape(2, 3, 4)
    padding = torch.tensor([[False, False, True], [True] * 3])
    return model(sequences, src_key_padding_mask=padding) * sequences


@case(captured=False)
def padding_without_gradients():
    return Case(_encoder(), torch.no_grad()(_padded))


@case(captured=False)
def padding_of_frozen_layers():
    return Case(_encoder().requires_grad_(False), _padded)


@case(captured=False)
def attention_to_padding_without_gradients():
    def call(model, x, i):
        sequences = torch.linspace(-1, 1, 24).reshape(2, 3, 4)
        mask = torch.tensor([[False, False, True], [True] * 3])
        return model(sequences, sequences, sequences, key_padding_mask=mask, need_weights=False)[0]

    return Case(nn.MultiheadAttention(4, 2, batch_first=True).eval(), torch.no_grad()(call))


@case(captured=True)
def padding_with_gradients():
    return Case(_encoder(), _padded)


@case(captured=True)
def no_padding_without_gradients():
    return Case(
        _encoder(), torch.no_grad()(lambda model, x, i: model(x[None].repeat(1, 1, 2)[..., :4]))
    )


@case(captured=True)
def a_quotient_of_sizes_rounded_up():
    """Sizes cannot express it: captured for the sizes that came."""

    def body(s, x):
        rows = math.ceil(x.shape[0] / 2) * 2
        return s.l(torch.cat([x, x])[:rows])

    return Case(Base(body))


@case(captured=False)
def how_conversions_change_modules():
    """A setting that no guard holds: it changes before the last call."""

    def body(s, x):
        overwrites = torch.__future__.get_overwrite_module_params_on_conversion()
        return s.l(x) * (2.0 if overwrites else 1.0)

    def call(model, x, i):
        torch.__future__.set_overwrite_module_params_on_conversion(i > 1)
        try:
            return model(x)
        finally:
            torch.__future__.set_overwrite_module_params_on_conversion(False)

    return Case(Base(body), call)
