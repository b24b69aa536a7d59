// Texts that a regular expression matches as a whole.
#include "csrc/ops/ops.h"
#include "csrc/ops/text/regex.h"

namespace ort {

static void register_full_match(OpSet& ops) {
  ops.op("RegexFullMatch")
      .in("X", bit(DType::string))
      .out("Y", kBool, "Y")
      .since(20)
      .attr_required("pattern")
      .shape([](InferContext& c) {
        regex::Pattern(c.attrs().s("pattern"));  // refused here, if at all
        c.out(0, DType::boolean, c.type(0).dims);
      })
      .not_differentiable();
}

const Family<OpSet> kFullMatchOps("ops", "text/full_match", register_full_match);

}  // namespace ort
