// Torch tensors in the memory of `far`: the device that torch calls by a name of its own.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include "tests/far/queue.h"

namespace far {

inline const c10::Device kDevice{c10::DeviceType::PrivateUse1, 0};

const at::Generator& generator();
Stream& compute();  // torch's one stream is the engine's first
void register_hooks();

}  // namespace far
