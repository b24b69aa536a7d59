// Regular expressions in the syntax of RE2, matched against whole texts in linear time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/ops/text/regex_set.h"

namespace ort::regex {

enum class At : uint8_t { begin, end, line_begin, line_end, word_edge, no_word_edge };

struct Step {
  enum class Kind : uint8_t { set, fork, jump, at, match } kind;
  size_t a = 0, b = 0;  // a set, or where to go on; of a fork both
  At at = At::begin;
};

// Throws where the pattern is none, has what is not supported (\C) or is too
// large.
class Pattern {
 public:
  explicit Pattern(const std::string& pattern);
  bool matches(const std::string& text) const;  // as a whole
  // The longest one of the matches that begin first, from a character on: where it begins and ends.
  std::optional<std::pair<size_t, size_t>> find(const std::vector<uint32_t>& text,
                                                size_t from) const;

 private:
  std::vector<Ranges> sets_;
  std::vector<Step> steps_;
};

}  // namespace ort::regex
