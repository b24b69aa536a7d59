// ORT_VERSION is defined by CMake for this file alone, so that a new version rebuilds one file.
#include "csrc/core/version.h"

namespace ort {

const char* version() {
  return ORT_VERSION;
}

}  // namespace ort
