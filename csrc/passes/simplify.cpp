// Simplification and recomposition: visible lists, because order matters.
#include "csrc/passes/simplify.h"

#include "csrc/passes/rules/rules.h"

namespace ort {

const Rules& simplify_rules() {
  static const Rules* list = new Rules{
      rules::identity(),
      rules::add_zero(),
      rules::sub_zero(),
      rules::mul_one(),
      rules::div_one(),
      rules::pow_one(),
      rules::pow_two(),
      rules::double_negation(),
      rules::add_negative(),
      rules::same_cast(),
      rules::squeeze_as_reshape(),
      rules::unsqueeze_as_reshape(),
      rules::flatten_as_reshape(),
      rules::same_shape_reshape(),
      rules::reshape_of_reshape(),
      rules::same_shape_expand(),
      rules::identity_transpose(),
      rules::transpose_of_transpose(),
      rules::attention_of_transposed(),
  };
  return *list;
}

const Rules& recompose_rules(const OpSet& ops) {
  static const Rules* list = [&] {
    auto* rules = new Rules{
        rules::pow_two(),
        rules::reciprocal_of_sqrt(),
        rules::gelu_from_erf(),
        rules::gelu_from_erf_half_outside(),
        rules::gelu_from_tanh(),
        rules::rms_norm_from_parts(),
        rules::layer_norm_from_parts(),
        rules::swish_from_sigmoid(),
    };
    for (Rule& rule : definition_rules(ops)) rules->push_back(std::move(rule));
    return rules;
  }();
  return *list;
}

}  // namespace ort
