// Sets of characters.
#include "csrc/ops/text/regex_set.h"

#include <algorithm>
#include <map>

#include "csrc/core/error.h"
#include "csrc/ops/text/case.h"
#include "csrc/ops/text/unicode.h"

namespace ort::regex {
namespace {

const Ranges kDigits = {{'0', '9'}};
const Ranges kWords = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const Ranges kSpaces = {{'\t', '\n'}, {'\f', '\r'}, {' ', ' '}};

// What letters that differ by case alone have in common. Turkish's two letters i with one upper
// case or another are not among them.
uint32_t folded(uint32_t code) {
  constexpr uint32_t kDotted = 0x130, kDotless = 0x131;
  if (code == kDotted || code == kDotless) return code;
  return utf8::mapped(utf8::mapped(code, utf8::kToUpper), utf8::kToLower);
}

// Such letters, each with the others.
const std::vector<std::vector<uint32_t>>& cases() {
  static const std::vector<std::vector<uint32_t>> found = [] {
    std::map<uint32_t, std::vector<uint32_t>> by_folded;
    const auto add = [&](uint32_t code) {
      const uint32_t common = folded(code);
      by_folded.try_emplace(common, 1, common).first->second.push_back(code);
    };
    for (const auto& runs : {utf8::kToUpper, utf8::kToLower})
      for (const utf8::CaseRun& run : runs)
        for (uint32_t code = run.first; code <= run.last; code += run.step) add(code);
    std::vector<std::vector<uint32_t>> groups;
    for (auto& [_, group] : by_folded) groups.push_back(std::move(group));
    return groups;
  }();
  return found;
}

void add_runs(Ranges& to, std::span<const utf8::CodeRun> runs) {
  for (const utf8::CodeRun& run : runs) {
    const uint32_t length = run.step == 1 ? run.last - run.first : 0;
    for (uint32_t code = run.first; code <= run.last; code += length + run.step)
      to.emplace_back(code, code + length);
  }
}

}  // namespace

Ranges joined(Ranges ranges) {
  std::sort(ranges.begin(), ranges.end());
  Ranges made;
  for (const auto& [first, last] : ranges)
    if (!made.empty() && first <= made.back().second + 1)
      made.back().second = std::max(made.back().second, last);
    else
      made.emplace_back(first, last);
  return made;
}

Ranges others(Ranges ranges) {
  Ranges made;
  uint32_t from = 0;
  for (const auto& [first, last] : joined(std::move(ranges))) {
    if (first > from) made.emplace_back(from, first - 1);
    from = last + 1;
  }
  if (from <= kLast) made.emplace_back(from, kLast);
  return made;
}

bool holds(const Ranges& set, uint32_t code) {
  const auto range = std::partition_point(set.begin(), set.end(),
                                          [code](const auto& each) { return each.second < code; });
  return range != set.end() && range->first <= code;
}

Ranges in_any_case(Ranges ranges) {
  Ranges made = joined(std::move(ranges));
  const auto among = [set = made](uint32_t code) { return holds(set, code); };
  for (const auto& group : cases())
    if (std::any_of(group.begin(), group.end(), among))
      for (const uint32_t code : group) made.emplace_back(code, code);
  return joined(std::move(made));
}

Ranges named_class(const std::string& name) {
  if (name == "alnum") return {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}};
  if (name == "alpha") return {{'A', 'Z'}, {'a', 'z'}};
  if (name == "ascii") return {{0, 127}};
  if (name == "blank") return {{'\t', '\t'}, {' ', ' '}};
  if (name == "cntrl") return {{0, 31}, {127, 127}};
  if (name == "digit") return kDigits;
  if (name == "graph") return {{'!', '~'}};
  if (name == "lower") return {{'a', 'z'}};
  if (name == "print") return {{' ', '~'}};
  if (name == "punct") return {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}};
  if (name == "space") return {{'\t', '\r'}, {' ', ' '}};
  if (name == "upper") return {{'A', 'Z'}};
  if (name == "word") return kWords;
  check(name == "xdigit", "[:{}:] is no class", name);
  return {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
}

Ranges unicode_class(const std::string& name) {
  if (name == "Any") return {{0, kLast}};
  Ranges made;
  for (const auto& classes : {utf8::kCategories, utf8::kScripts})
    for (const auto& [each, runs] : classes)
      if (each == name || (each.size() == 2 && each.substr(0, 1) == name)) add_runs(made, runs);
  check(!made.empty(), "'{}' is no class of Unicode", name);
  return joined(std::move(made));
}

std::optional<Ranges> lettered(char letter) {
  if (letter == 'd') return kDigits;
  if (letter == 'w') return kWords;
  if (letter == 's') return kSpaces;
  return {};
}

}  // namespace ort::regex
