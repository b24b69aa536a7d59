// The one place that reads the environment.
#include "csrc/core/env.h"

#include <charconv>
#include <cstdlib>

#include "csrc/core/error.h"

namespace ort::env {
namespace {

std::string text(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// Between commas.
std::vector<std::string> words(const char* name) {
  std::vector<std::string> found{""};
  for (const char c : text(name))
    if (c == ',')
      found.emplace_back();
    else
      found.back() += c;
  std::erase(found, "");
  return found;
}

}  // namespace

int debug() {
  return std::atoi(text("ORTMODULE_DEBUG").c_str());
}
std::string why() {
  return text("ORTMODULE_WHY");
}
std::string near() {
  return text("ORTMODULE_NEAR");
}
bool poison() {
  return text("ORTMODULE_POISON") == "1";
}

std::vector<std::string> providers() {
  return words("ORTMODULE_PROVIDERS");
}
bool check() {
  return text("ORTMODULE_CHECK") == "1";
}
std::optional<int> fuel() {
  const std::string value = text("ORTMODULE_FUEL");
  if (value.empty()) return {};
  int count = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), count);
  ort::check(error == std::errc() && end == value.data() + value.size(),
             "ORTMODULE_FUEL is {}, expected a number of rewrites", value);
  return count;
}
std::vector<std::string> off() {
  return words("ORTMODULE_OFF");
}
std::string dump() {
  return text("ORTMODULE_DUMP");
}

std::string code_cache() {
  const std::string given = text("ORTMODULE_CACHE");
  if (given == "off") return "";
  ort::check(given.empty() || given[0] == '/',
             "ORTMODULE_CACHE is {}, expected a folder's absolute path, or off", given);
  if (!given.empty()) return given;
  const std::string caches = text("XDG_CACHE_HOME"), home = text("HOME");
  if (caches.starts_with('/')) return caches + "/ortmodule";
  return home.starts_with('/') ? home + "/.cache/ortmodule" : "";
}

}  // namespace ort::env
