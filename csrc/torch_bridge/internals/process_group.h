// c10d's groups by their names, as functional collectives have them.
//
// Of torch, in every version from 2.11 on: resolve_process_group
// (torch/csrc/distributed/c10d/GroupRegistry.hpp). The group itself is public: backends extend it.
#pragma once

#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include <string>

namespace ort::bridge {

inline c10::intrusive_ptr<c10d::ProcessGroup> process_group(const std::string& name) {
  return c10d::resolve_process_group(name);
}

}  // namespace ort::bridge
