// Torch tensors in the memory of `far`: the device that torch calls by a name of its own.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include "tests/far/queue.h"

namespace far {

inline const c10::Device kDevice{c10::DeviceType::PrivateUse1, 0};

const at::Generator& generator();
Stream& stream_of(c10::StreamId id);  // of torch's, which are none of the engine's own
Stream& current();                    // of the calling thread
void register_hooks();

}  // namespace far
