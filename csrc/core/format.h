// Text building: format("{} is {}", a, b). std::format needs a newer compiler than the oldest we
// support.
#pragma once

#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace ort {

template <class T>
void append(std::ostream& out, const T& value) {
  out << value;
}

template <class T>
void append(std::ostream& out, const std::vector<T>& values) {
  out << '[';
  const char* comma = "";
  for (const auto& value : values) {
    out << comma;
    append(out, value);
    comma = ", ";
  }
  out << ']';
}

inline void format_rest(std::ostream& out, std::string_view text) {
  out << text;
}

template <class First, class... Rest>
void format_rest(std::ostream& out, std::string_view text, const First& first,
                 const Rest&... rest) {
  const size_t hole = text.find("{}");
  if (hole == std::string_view::npos) {
    out << text;
    return;
  }
  out << text.substr(0, hole);
  append(out, first);
  format_rest(out, text.substr(hole + 2), rest...);
}

// Replaces each "{}" by the next argument; vectors print as [a, b]. An object: a function's name
// would find std::format too, by an argument of namespace std, where the library has one.
struct Format {
  template <class... Args>
  std::string operator()(std::string_view text, const Args&... args) const {
    std::ostringstream out;
    format_rest(out, text, args...);
    return out.str();
  }
};
inline constexpr Format format;

}  // namespace ort
