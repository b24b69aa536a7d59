// Fusion: a visible list, because order matters.
#include "csrc/passes/fuse.h"

#include "csrc/passes/rules/rules.h"

namespace ort {

const Rules& fuse_rules() {
  static const Rules* list = [] {
    auto* rules = new Rules{
        rules::gemm_as_matmul(),
        rules::matmul_bias(),
        rules::matmul_transposed_right(),
        rules::matmul_transposed_left(),
    };
    for (Rule& rule : rules::linear_activations()) rules->push_back(std::move(rule));
    return rules;
  }();
  return *list;
}

}  // namespace ort
