// Text as a JSON string: traces and plans are written by hand.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace ort {

inline std::string json_text(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
      result += code;
      continue;
    }
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + '"';
}

}  // namespace ort
