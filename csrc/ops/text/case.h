// Upper and lower case of UTF-8, letter by letter, in no locale.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ort::utf8 {

// Letters first, first + step, .., last become those `distance` behind them.
struct CaseRun {
  uint32_t first, last, step;
  int32_t distance;
};
// Sorted: the simple mappings, of one letter to one.
extern const std::span<const CaseRun> kToLower, kToUpper;

uint32_t mapped(uint32_t code, std::span<const CaseRun> runs);
// The text with its letters mapped; bytes that are no UTF-8 stay.
std::string mapped(const std::string& text, std::span<const CaseRun> runs);

// A character of UTF-8 and how many bytes it has; a byte that begins none is 1 and kNoCharacter.
struct Character {
  uint32_t code;
  size_t bytes;
};
constexpr uint32_t kNoCharacter = 0xffffffff;
Character character_at(const std::string& text, size_t at);
void append(std::string& text, uint32_t code);
std::vector<uint32_t> characters(const std::string& text);

}  // namespace ort::utf8
