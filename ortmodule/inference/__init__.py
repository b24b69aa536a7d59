"""InferenceSession: any ONNX file in our engine, without torch, with onnxruntime's Python surface.

In: ONNX files, arrays, and scripts that were written for onnxruntime; out: arrays. `ortmodule` has
the same names; as_onnxruntime puts them under the name onnxruntime. What has no effect here is
taken, what we do not have raises one error.
Imports custom_ops, whose ops files may have.
"""

from .._lazy import lazily

# public name -> module that defines it
PUBLIC = {
    "InferenceSession": "session",
    "BoundRun": "session",
    "NodeArg": "ports",
    "ModelMetadata": "ports",
    "SessionOptions": "options",
    "RunOptions": "options",
    "OrtValue": "values",
    "copy_tensors": "values",
    "IOBinding": "binding",
    "SessionIOBinding": "binding",
    **dict.fromkeys(
        (
            "OrtAllocatorType",
            "OrtCompileApiFlags",
            "OrtDeviceMemoryType",
            "OrtDeviceVendorId",
            "OrtExecutionProviderDevicePolicy",
            "OrtHardwareDeviceType",
            "OrtMemType",
            "OrtMemoryInfoDeviceType",
            "OrtSparseFormat",
            "ExecutionMode",
            "ExecutionOrder",
            "GraphOptimizationLevel",
        ),
        "enums",
    ),
    **dict.fromkeys(
        (
            "OrtDevice",
            "OrtMemoryInfo",
            "OrtArenaCfg",
            "OrtEpDevice",
            "OrtHardwareDevice",
            "OrtEpAssignedNode",
            "OrtEpAssignedSubgraph",
            "OrtExternalInitializerInfo",
            "get_ep_devices",
        ),
        "devices",
    ),
    **dict.fromkeys(
        (
            "create_and_register_allocator",
            "create_and_register_allocator_v2",
            "disable_telemetry_events",
            "enable_telemetry_events",
            "get_all_providers",
            "get_available_providers",
            "get_build_info",
            "get_device",
            "get_version_string",
            "has_collective_ops",
            "preload_dlls",
            "print_debug_info",
            "set_default_logger_severity",
            "set_default_logger_verbosity",
            "set_global_thread_pool_sizes",
            "set_seed",
        ),
        "process",
    ),
    **dict.fromkeys(
        (
            "AdapterFormat",
            "LoraAdapter",
            "ModelCompiler",
            "OrtEpContextData",
            "OrtEpContextDataBuffer",
            "OrtSyncStream",
            "SparseTensor",
            "register_execution_provider_library",
            "unregister_execution_provider_library",
        ),
        "refused",
    ),
    "as_onnxruntime": "as_onnxruntime",
}

__all__ = list(PUBLIC)

__getattr__, __dir__ = lazily(__name__, PUBLIC)
