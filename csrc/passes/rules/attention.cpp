// Attention takes q, k and v as the projections leave them: the transposes around it go.
#include "csrc/passes/rules/rules.h"

namespace ort::rules {
namespace {

const std::vector<int64_t> kSwapped{0, 2, 1, 3};

Value swapped(Pattern& p, const std::string& name) {
  return p.named(name, p.op("Transpose", {p["under_" + name]}));
}

// The one transpose left, of the result, meets the one that the module makes, and both go.
Rule attention_of_transposed() {
  return rule("attention_of_transposed")
      .shared()
      .match([](Pattern& p) {
        return p.named("attention",
                       p.op("ort::Attention", {swapped(p, "q"), swapped(p, "k"), swapped(p, "v"),
                                               p.maybe("mask"), p.maybe("key")}));
      })
      .when([](const Match& m) {
        if (m.attrs("attention").i("heads_axis") != 1) return Verdict::no("heads are not first");
        for (const char* name : {"q", "k", "v"})
          if (!m.attrs(name).has("perm") || m.attrs(name).ints("perm") != kSwapped)
            return Verdict::no(format("{} is not transposed by {}", name, kSwapped));
        return Verdict::yes();
      })
      .rewrite([](const Match& m) {
        Attrs attrs = m.attrs("attention");
        attrs.set("heads_axis", int64_t{2});
        const std::vector<Value> in{m["under_q"], m["under_k"], m["under_v"], m["mask"], m["key"]};
        return transpose(m.graph().emit("ort::Attention", in, std::move(attrs))[0], kSwapped);
      });
}

}  // namespace

Rules attention_rules() {
  return {attention_of_transposed()};
}

}  // namespace ort::rules
