// Fusion: a visible list, because order matters.
#include "csrc/passes/fuse.h"

#include "csrc/passes/rules/rules.h"

namespace ort {

Rules fuse_rules(const OpSet& ops) {
  Rules all = rules::product_rules(ops);
  for (Rule& rule : rules::conv_rules(ops)) all.push_back(std::move(rule));
  return all;
}

}  // namespace ort
