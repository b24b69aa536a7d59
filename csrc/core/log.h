// One log, to standard error, with one prefix.
#pragma once

#include <cstdio>

#include "csrc/core/format.h"

namespace ort {

template <class... Args>
void log(std::string_view text, const Args&... args) {
  const std::string line = "ortmodule: " + format(text, args...) + "\n";
  std::fputs(line.c_str(), stderr);
}

}  // namespace ort
