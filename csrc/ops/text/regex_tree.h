// The parts of a regular expression, between its text and its steps.
#pragma once

#include <memory>

#include "csrc/ops/text/regex.h"

namespace ort::regex {

struct Part {
  enum class Kind : uint8_t { set, at, sequence, choice, repeat } kind = Kind::sequence;
  Ranges set{};
  At at = At::begin;
  int least = 0, most = 0;  // of a repeat; below 0: without end
  std::vector<std::unique_ptr<Part>> parts{};
};

std::unique_ptr<Part> parsed(const std::string& pattern);

}  // namespace ort::regex
