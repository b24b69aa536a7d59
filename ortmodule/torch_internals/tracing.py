"""Fake tensors, operators and symbols: what a module is traced with."""

import sys
from typing import Any

from .entry import need

check_number = need("torch._check", "sizes of packed weights")
detect_fake_mode = need("torch._guards.detect_fake_mode", "bodies of control flow")
reenter_make_fx = need("torch._higher_order_ops.utils.reenter_make_fx", "bodies of control flow")
HigherOrderOperator = need("torch._ops.HigherOrderOperator", "operators that own graphs")
OpOverload = need("torch._ops.OpOverload", "operators of a trace")
operators = need("torch._ops", "operators of a trace")
fake_impls = need("torch._subclasses.fake_impls", "operators on fake tensors")
fake_tensor = need("torch._subclasses.fake_tensor", "operators on fake tensors")
FakeTensor = need("torch._subclasses.fake_tensor.FakeTensor", "fake runs and traces")
as_meta = need(
    "torch._subclasses.fake_tensor.in_kernel_invocation_manager", "views of fake tensors"
)
FakeTensorMode = need("torch._subclasses.fake_tensor.FakeTensorMode", "fake runs and traces")
is_fake = need("torch._subclasses.fake_tensor.is_fake", "fake runs and traces")
dispatch_functionalize = need(
    "torch._subclasses.functional_tensor.dispatch_functionalize", "operators that are decomposed"
)
export_trace = need("torch.export._trace", "export without its logs")
proxy_tensor = need("torch.fx.experimental.proxy_tensor", "what a trace notes of each node")
symbolic_trace = need("torch.fx._symbolic_trace", "calls while torch.fx traces")
without_pre_dispatch_mode = need(
    "torch.fx.experimental.proxy_tensor._temp_remove_pre_dispatch_torch_function_mode",
    "bodies of control flow",
)
attention_math = need(
    "torch.ops.aten._scaled_dot_product_attention_math", "second runs of attention"
)
to_copy = need("torch.ops.aten._to_copy", "casts of autocast")
FloorDiv = need("torch.utils._sympy.functions.FloorDiv", "sizes as expressions")
sympy_functions = need("torch.utils._sympy.functions", "sizes as expressions")
SymT = need("torch.utils._sympy.symbol.SymT", "numbers as symbols")
symbol_is_type = need("torch.utils._sympy.symbol.symbol_is_type", "numbers as symbols")
tracebacks = need("torch.utils._traceback", "the user's line of each node")
higher_order_utils = need("torch._higher_order_ops.utils", "loops while a module is captured")


def fx_traces() -> bool:
    """Whether torch.fx traces: in this process up to torch 2.11, in this thread after it."""
    if ask := getattr(symbolic_trace, "_get_is_fx_tracing", None):
        return ask()
    return symbolic_trace._is_fx_tracing_flag


def operators_with_bodies(name: str) -> Any:
    """The module of cond, while_loop, scan, map or associative_scan: its package has a function of
    that name."""
    return sys.modules[f"torch._higher_order_ops.{name}"]
