"""Dynamo: what parts of a module are made with."""

from typing import Any

from .entry import need

dynamo_config = need("torch._dynamo.config", "settings of parts")
convert_frame = need("torch._dynamo.convert_frame", "looking at a function")
dynamo_utils = need("torch._dynamo.utils", "reasons of graph breaks")
comptime = need("torch._dynamo.comptime.comptime", "a wrapper that Dynamo traces")
DynamoContext = need("torch._dynamo.eval_frame._TorchDynamoContext", "looking at a function")
cache_entries = need(
    "torch._dynamo.eval_frame._debug_get_cache_entry_list", "forgetting code of parts"
)
reset_code = need("torch._dynamo.eval_frame.reset_code", "forgetting code of parts")
set_code_exec_strategy = need(
    "torch._dynamo.eval_frame.set_code_exec_strategy", "frames that are eager's"
)
ObservedAttributeError = need(
    "torch._dynamo.exc.ObservedAttributeError", "attributes that are not there"
)
TensorifyScalarRestartAnalysis = need(
    "torch._dynamo.exc.TensorifyScalarRestartAnalysis", "floats that stay numbers"
)
unimplemented = need("torch._dynamo.exc.unimplemented", "ending a graph")
dynamo_guards = need("torch._dynamo.guards", "guards of parts")
DeletedGuardManagerWrapper = need(
    "torch._dynamo.guards.DeletedGuardManagerWrapper", "forgetting code of parts"
)
GuardBuilder = need("torch._dynamo.guards.GuardBuilder", "guards of parts")
GuardManagerType = need("torch._dynamo.guards.GuardManagerType", "guards of parts")
get_key_index_source = need("torch._dynamo.guards.get_key_index_source", "guards on keys")
get_verbose_code_parts = need("torch._dynamo.guards.get_verbose_code_parts", "guards of parts")
install_guard = need("torch._dynamo.guards.install_guard", "guards of parts")
DynamoHooks = need("torch._dynamo.hooks.Hooks", "looking at a function")
TORCH_DYNAMO_RESUME_IN_PREFIX = need(
    "torch._dynamo.resume_execution.TORCH_DYNAMO_RESUME_IN_PREFIX", "parts that are all of forward"
)
SideEffects = need("torch._dynamo.side_effects.SideEffects", "objects that a part makes")
AttrSource = need("torch._dynamo.source.AttrSource", "numpy's scalars in parts")
InliningInstructionTranslator = need(
    "torch._dynamo.symbolic_convert.InliningInstructionTranslator", "calls that stay whole"
)
InstructionTranslator = need(
    "torch._dynamo.symbolic_convert.InstructionTranslator", "objects that a part makes"
)
InstructionTranslatorBase = need(
    "torch._dynamo.symbolic_convert.InstructionTranslatorBase", "text of numbers"
)
TensorifyState = need("torch._dynamo.symbolic_convert.TensorifyState", "floats that stay numbers")
compare_op_handlers = need(
    "torch._dynamo.symbolic_convert.compare_op_handlers", "comparisons in parts"
)
ConvertFrameReturn = need("torch._dynamo.types.ConvertFrameReturn", "frames that are eager's")
FrameAction = need("torch._dynamo.types.FrameAction", "frames that are eager's")
FrameExecStrategy = need("torch._dynamo.types.FrameExecStrategy", "frames that are eager's")
proxy_args_kwargs = need("torch._dynamo.utils.proxy_args_kwargs", "calls that stay whole")
AsPythonConstantNotImplementedError = need(
    "torch._dynamo.variables.base.AsPythonConstantNotImplementedError", "slices in parts"
)
AttrSource = need("torch._dynamo.source.AttrSource", "guards on attributes")
VariableTracker = need("torch._dynamo.variables.base.VariableTracker", "values in parts")
variable_builder = need("torch._dynamo.variables.builder", "values in parts")
VariableBuilder = need("torch._dynamo.variables.builder.VariableBuilder", "values in parts")
wrap_fx_proxy = need("torch._dynamo.variables.builder.wrap_fx_proxy", "calls that stay whole")
BuiltinVariable = need("torch._dynamo.variables.builtin.BuiltinVariable", "comparisons in parts")
ConstantVariable = need("torch._dynamo.variables.constant.ConstantVariable", "values in parts")
ConstDictVariable = need("torch._dynamo.variables.dicts.ConstDictVariable", "dicts in parts")
SetVariable = need("torch._dynamo.variables.SetVariable", "sets in parts")
CollectiveFunctionRewriteVariable = need(
    "torch._dynamo.variables.functions.CollectiveFunctionRewriteVariable", "collectives in parts"
)
SkipFunctionVariable = need(
    "torch._dynamo.variables.functions.SkipFunctionVariable", "functions that draw"
)
UserMethodVariable = need(
    "torch._dynamo.variables.functions.UserMethodVariable", "methods in parts"
)
CheckpointHigherOrderVariable = need(
    "torch._dynamo.variables.higher_order_ops.CheckpointHigherOrderVariable", "checkpoints in parts"
)
list_variables = need("torch._dynamo.variables.lists", "lists in parts")
BaseListVariable = need("torch._dynamo.variables.lists.BaseListVariable", "lists in parts")
TupleVariable = need("torch._dynamo.variables.lists.TupleVariable", "tuples in parts")
SliceVariable = need("torch._dynamo.variables.lists.SliceVariable", "slices in parts")
AutogradFunctionVariable = need(
    "torch._dynamo.variables.misc.AutogradFunctionVariable", "Functions in parts"
)
NumpyVariable = need("torch._dynamo.variables.misc.NumpyVariable", "numpy in parts")
StringFormatVariable = need("torch._dynamo.variables.misc.StringFormatVariable", "text in parts")
produce_trampoline_autograd_apply = need(
    "torch._dynamo.variables.misc.produce_trampoline_autograd_apply", "Functions in parts"
)
UnspecializedNNModuleVariable = need(
    "torch._dynamo.variables.nn_module.UnspecializedNNModuleVariable", "modules in parts"
)
SymNodeVariable = need("torch._dynamo.variables.tensor.SymNodeVariable", "numbers in parts")
TensorSubclassVariable = need(
    "torch._dynamo.variables.tensor.TensorSubclassVariable", "subclasses in parts"
)
TensorVariable = need("torch._dynamo.variables.tensor.TensorVariable", "tensors in parts")
supported_comparison_ops = need(
    "torch._dynamo.variables.tensor.supported_comparison_ops", "comparisons in parts"
)
TorchInGraphFunctionVariable = need(
    "torch._dynamo.variables.torch.TorchInGraphFunctionVariable", "autocast that forward sets"
)
UserDefinedObjectVariable = need(
    "torch._dynamo.variables.user_defined.UserDefinedObjectVariable", "objects in parts"
)
autograd_function_apply = need(
    "torch._functorch.autograd_function.autograd_function_apply", "Functions in parts"
)
get_data_attr = need("torch._C._autograd._get_data_attr", "Tensor.data in parts")
TracingContext = need("torch._guards.TracingContext", "graphs of parts")
LazyGraphModule = need("torch.fx._lazy_graph_module._LazyGraphModule", "graphs of parts")
eval_frame = need("torch._dynamo.eval_frame", "functions that Dynamo traces")
builtin_variables = need("torch._dynamo.variables.builtin", "setattr() in parts")


def hashing() -> tuple[type, type]:
    """The classes of Dynamo for dicts and for sets; up to torch 2.11 a set is a dict to it."""
    return ConstDictVariable, SetVariable.__base__


def items_of(iterable: Any, tx: Any) -> list[Any]:
    """Dynamo's variables of what its variable of an iterable gives. Newer torch has a function in
    the place of the method."""
    if (unpack := getattr(dynamo_utils, "unpack_iterable", None)) is not None:
        return unpack(tx, iterable)
    return iterable.force_unpack_var_sequence(tx)


def setting() -> tuple[type, str]:
    """The class of Dynamo that runs setattr(), and its method: up to torch 2.12 that of all
    builtins, since 2.13 one of its own."""
    if (own := getattr(builtin_variables, "SetAttrBuiltinVariable", None)) is not None:
        return own, "_call_setattr"
    return BuiltinVariable, "call_setattr"
