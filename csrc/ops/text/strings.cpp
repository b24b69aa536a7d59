// Strings joined, taken apart and cleaned. They are made of UTF-8; what is not passes unchanged.
#include "csrc/ops/ops.h"

namespace ort {
namespace {

constexpr TypeSet kTexts = bit(DType::string);

// Results by position, and as many places behind as the longest split has.
void infer_split(InferContext& c) {
  if (!c.ranked(0)) {
    c.out(0, DType::string, std::nullopt);
    return c.out(1, DType::i64, std::nullopt);
  }
  Dims parts = c.dims();
  parts.push_back(c.fresh());
  c.out(0, DType::string, std::move(parts));
  if (c.wants(1)) c.out(1, DType::i64, c.dims());
}

void infer_normalize(InferContext& c) {
  const std::string& action = c.attrs().s("case_change_action");
  c.require(action == "LOWER" || action == "UPPER" || action == "NONE",
            "case_change_action is '{}', expected LOWER, UPPER or NONE", action);
  c.attrs().list<std::string>("stopwords");  // refused here, if at all
  if (!c.ranked(0)) return c.out(0, DType::string, std::nullopt);
  c.require(c.rank() == 1 || (c.rank() == 2 && may_be_equal(c.dims()[0], 1)),
            "X has shape {}, expected [C] or [1, C]", c.dims());
  if (c.rank() == 1) return c.out(0, DType::string, Dims{c.fresh()});
  c.assume_equal({c.dims()[0]}, {Dim(1)}, "rows of strings");
  c.out(0, DType::string, Dims{1, c.fresh()});
}

}  // namespace

static void register_strings(OpSet& ops) {
  ops.op("StringConcat")
      .in("X", kTexts)
      .in("Y", kTexts)
      .out("Z", kTexts)
      .since(20)
      .allocates()
      .shape([](InferContext& c) {
        if (!c.ranked(0) || !c.ranked(1)) return c.out(0, DType::string, std::nullopt);
        c.out(0, DType::string, c.broadcast(c.dims(0), c.dims(1), "strings"));
      })
      .not_differentiable();
  // Without a delimiter, or with an empty one, parts are what lies between runs of white
  // space; maxsplit below 0 is no bound.
  ops.op("StringSplit")
      .in("X", kTexts)
      .out("Y", kTexts)
      .out("Z", kInt64, "Z")
      .since(20)
      .attr("delimiter", std::string())
      .attr("maxsplit", int64_t{-1})
      .allocates()
      .shape(infer_split)
      .not_differentiable();
  // Elements that are a stop word are left out; of none an empty string is left. Case is changed
  // letter by letter by Unicode's simple mappings, in every locale the same: of another name than
  // one, as of Turkish, nothing is made.
  ops.op("StringNormalizer")
      .in("X", kTexts)
      .out("Y", kTexts)
      .since(10)
      .attr("case_change_action", std::string("NONE"))
      .attr("is_case_sensitive", int64_t{0})
      .attr_optional("locale")
      .attr_optional("stopwords")
      .allocates()
      .shape(infer_normalize)
      .not_differentiable();
}

const Family<OpSet> kStringsOps("ops", "text/strings", register_strings);

}  // namespace ort
