// Strings taken apart into tokens, as text pipelines of scikit-learn's are written.
#include <algorithm>

#include "csrc/ops/ops.h"
#include "csrc/ops/text/regex.h"

namespace ort {
namespace {

constexpr TypeSet kTokenTexts = bit(DType::string);

// Y has the tokens of each string of X, and as many places behind as the longest one has.
void infer_tokens(InferContext& c) {
  const Attrs& attrs = c.attrs();
  const auto& separators = attrs.list<std::string>("separators");
  const std::string& expression = attrs.s("tokenexp");
  const size_t count = separators.size();
  c.require((count > 0) != !expression.empty(),
            "it has {} separators and tokenexp is '{}', expected one of the two", count,
            expression);
  if (!expression.empty()) regex::Pattern{expression};  // refused here, if at all
  for (const std::string& separator : separators) regex::Pattern{separator};
  const int64_t least = attrs.i("mincharnum");
  const bool letters = expression == "." || (count == 1 && separators[0].empty());
  c.require(least >= 1 && (!letters || least == 1), "mincharnum is {}, expected {}", least,
            letters ? "1 of tokens of one letter" : "at least 1");
  c.require(attrs.i("mark") == 0 || attrs.i("mark") == 1, "mark is {}, expected 0 or 1",
            attrs.i("mark"));
  if (!c.ranked(0)) return c.out(0, DType::string, std::nullopt);
  c.require(c.rank() == 1 || c.rank() == 2, "X has shape {}, expected [C] or [N, C]", c.dims());
  Dims dims = c.dims();
  dims.push_back(c.fresh());
  c.out(0, DType::string, std::move(dims));
}

}  // namespace

static void register_tokenizer(OpSet& ops) {
  ops.op("com.microsoft::Tokenizer")
      .in("X", kTokenTexts)
      .out("Y", kTokenTexts)
      .attr_required("mark")
      .attr_required("mincharnum")
      .attr_required("pad_value")
      .attr_optional("separators")
      .attr("tokenexp", std::string())
      .allocates()
      .shape(infer_tokens)
      .not_differentiable();
}

const Family<OpSet> kTokenizerOps("ops", "text/tokenizer", register_tokenizer);

}  // namespace ort
