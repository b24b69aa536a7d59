// Sets of characters by ranges of their codes, sorted and apart.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ort::regex {

using Ranges = std::vector<std::pair<uint32_t, uint32_t>>;
constexpr uint32_t kLast = 0x10ffff;

Ranges joined(Ranges ranges);  // in any order, overlapping or not, as a set
Ranges others(Ranges ranges);  // all characters that are in none of them
bool holds(const Ranges& set, uint32_t code);
// With every character that differs by case alone from one of them, by Unicode's simple folding.
Ranges in_any_case(Ranges ranges);

Ranges named_class(const std::string& name);  // alpha of [:alpha:]; throws where there is none
// Of a category by its two letters or the first of them, or of a script; throws where there is
// none.
Ranges unicode_class(const std::string& name);
std::optional<Ranges> lettered(char letter);  // of \d, \s, \w

}  // namespace ort::regex
