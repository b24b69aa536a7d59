// Fusion: a visible list, because order matters.
#include "csrc/passes/fuse.h"

#include "csrc/passes/rules/rules.h"

namespace ort {

Rules fuse_rules(const OpSet& ops) {
  return rules::product_rules(ops);
}

}  // namespace ort
