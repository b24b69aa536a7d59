"""Devices and dispatch keys."""

from .entry import need

GLIBCXX_USE_CXX11_ABI = need("torch._C._GLIBCXX_USE_CXX11_ABI", "loading the bridge")
has_kernel_for_key = need("torch._C._dispatch_has_kernel_for_dispatch_key", "casts of autocast")
key_for_device = need("torch._C._dispatch_key_for_device", "casts of autocast")
ensure_cuda_guard = need("torch._C._ensureCUDADeviceGuardSet", "devices")
privateuse1_name = need("torch._C._get_privateuse1_backend_name", "devices")
