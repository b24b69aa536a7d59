// Unicode's classes of characters: general categories by their two letters, and scripts.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace ort::utf8 {

// Codes first, first + step, .., last.
struct CodeRun {
  uint32_t first, last, step = 1;
};
struct CodeClass {
  std::string_view name;
  std::span<const CodeRun> runs;
};
extern const std::span<const CodeClass> kCategories, kScripts;

}  // namespace ort::utf8
