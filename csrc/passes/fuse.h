// The list of rules that fuse.
#pragma once

#include "csrc/passes/rule.h"

namespace ort {

const Rules& fuse_rules();

}  // namespace ort
