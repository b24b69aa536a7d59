// Streams of any device that torch knows, without that device's headers.
//
// Of torch: VirtualGuardImpl (c10/core/impl/VirtualGuardImpl.h), which has getStreamNativeHandle in
// every version from 2.11 on.
#pragma once

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace ort::bridge {

inline c10::Stream current_stream_of(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

// As the device's own library has it.
inline void* native_handle(const c10::Stream& stream) {
  return c10::impl::VirtualGuardImpl(stream.device_type()).getStreamNativeHandle(stream);
}

}  // namespace ort::bridge
