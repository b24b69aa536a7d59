// UTF-8 and its mappings of case.
#include "csrc/ops/text/case.h"

#include <algorithm>

namespace ort::utf8 {

Character character_at(const std::string& text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[at + i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xf0 && lead < 0xf8 ? 4 : lead >= 0xe0 ? 3 : 2;
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (lead < 0xc0 || lead >= 0xf8 || at + bytes > text.size()) return {kNoCharacter, 1};
  uint32_t code = lead & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {kNoCharacter, 1};
    code = code << 6 | (byte(i) & 0x3fu);
  }
  const bool real = code >= kLeast[bytes] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
  return real ? Character{code, bytes} : Character{kNoCharacter, 1};
}

void append(std::string& text, uint32_t code) {
  const auto put = [&](uint32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xc0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xe0 | code >> 12);
    } else {
      put(0xf0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3f));
    }
    put(0x80 | (code >> 6 & 0x3f));
  }
  put(0x80 | (code & 0x3f));
}

std::vector<uint32_t> characters(const std::string& text) {
  std::vector<uint32_t> codes;
  for (size_t at = 0; at < text.size();) {
    const auto [code, bytes] = character_at(text, at);
    codes.push_back(code);
    at += bytes;
  }
  return codes;
}

uint32_t mapped(uint32_t code, std::span<const CaseRun> runs) {
  const auto run = std::partition_point(runs.begin(), runs.end(),
                                        [&](const CaseRun& r) { return r.last < code; });
  const bool maps = run != runs.end() && run->first <= code && (code - run->first) % run->step == 0;
  return maps ? static_cast<uint32_t>(static_cast<int64_t>(code) + run->distance) : code;
}

std::string mapped(const std::string& text, std::span<const CaseRun> runs) {
  std::string made;
  made.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const auto [code, bytes] = character_at(text, at);
    const uint32_t to = mapped(code, runs);
    if (to == code)
      made.append(text, at, bytes);
    else
      append(made, to);
    at += bytes;
  }
  return made;
}

}  // namespace ort::utf8
