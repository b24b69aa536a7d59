// Writing every stage of a build into a folder, for `python -m ortmodule.view`.
#pragma once

#include <functional>
#include <string>

#include "csrc/graph/graph.h"

namespace ort {

// A receiver of stages that writes <folder>/<build>/<number>_<stage>.txt; empty when `folder` is.
std::function<void(const std::string& stage, const Graph&)> dumper(const std::string& folder);

}  // namespace ort
