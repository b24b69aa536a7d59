// Simplification and recomposition: visible lists, because order matters.
#include "csrc/passes/simplify.h"

#include "csrc/passes/rules/rules.h"

namespace ort {
namespace {

Rules joined(std::initializer_list<Rules> subjects) {
  Rules all;
  for (const Rules& rules : subjects) all.insert(all.end(), rules.begin(), rules.end());
  return all;
}

}  // namespace

const Rules& simplify_rules() {
  static const Rules* list = new Rules(joined({
      rules::identity_rules(),
      rules::movement_rules(),
      rules::attention_rules(),
  }));
  return *list;
}

const Rules& quantized_rules() {
  static const Rules* list = new Rules(rules::quantized_rules());
  return *list;
}

const Rules& recompose_rules(const OpSet& ops) {
  static const Rules* list = new Rules(joined({
      {rules::pow_two()},
      rules::activation_rules(),
      rules::norm_rules(),
      definition_rules(ops),
  }));
  return *list;
}

}  // namespace ort
