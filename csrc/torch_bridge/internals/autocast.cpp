// Of torch, in every version from 2.11 on: _AUTOCAST_SUPPORTED_DEVICES with the state of each
// (ATen/autocast_mode.h), and the keys of autocast, which are on where the thread does not exclude
// them (c10/core/impl/LocalDispatchKeySet.h).
#include "csrc/torch_bridge/internals/autocast.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace ort::bridge {

Autocast Autocast::now() {
  const auto off = c10::impl::tls_local_dispatch_key_set().excluded_;
  Autocast now{(c10::autocast_dispatch_keyset - off).raw_repr(), {}};
  for (size_t i = 0; i < now.dtypes.size(); ++i)
    now.dtypes[i] = at::autocast::get_autocast_dtype(at::autocast::_AUTOCAST_SUPPORTED_DEVICES[i]);
  return now;
}

std::vector<std::string> autocast_devices() {
  std::vector<std::string> names;
  for (const at::DeviceType type : at::autocast::_AUTOCAST_SUPPORTED_DEVICES)
    if (at::autocast::is_autocast_enabled(type)) names.push_back(c10::DeviceTypeName(type, true));
  return names;
}

}  // namespace ort::bridge
