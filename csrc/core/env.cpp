// The one place that reads the environment.
#include "csrc/core/env.h"

#include <cstdlib>

namespace ort::env {
namespace {

std::string text(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
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

}  // namespace ort::env
