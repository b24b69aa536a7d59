// The list of rules that fuse.
#pragma once

#include "csrc/passes/rule.h"

namespace ort {

Rules fuse_rules(const OpSet& ops);

}  // namespace ort
