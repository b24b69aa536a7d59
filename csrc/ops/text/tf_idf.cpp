// Counts of n-grams. A weight is that of a gram, as ONNX says and onnxruntime has it; onnx's
// reference takes it for that of an output.
#include <algorithm>

#include "csrc/ops/ops.h"

namespace ort {
namespace {

void check_lengths(InferContext& c) {
  const Attrs& attrs = c.attrs();
  const int64_t least = attrs.i("min_gram_length"), most = attrs.i("max_gram_length");
  const auto& counts = attrs.ints("ngram_counts");
  c.require(least >= 1 && least <= most && most <= static_cast<int64_t>(counts.size()),
            "grams have {} to {} items, ngram_counts are of 1 to {}", least, most, counts.size());
  c.require(attrs.i("max_skip_count") >= 0, "max_skip_count is {}", attrs.i("max_skip_count"));
  const std::string& mode = attrs.s("mode");
  c.require(mode == "TF" || mode == "IDF" || mode == "TFIDF",
            "mode is '{}', expected TF, IDF or TFIDF", mode);
}

// How many grams the pool has: those of n items begin at ngram_counts[n - 1].
int64_t check_pool(InferContext& c) {
  const Attrs& attrs = c.attrs();
  const bool strings = c.dtype() == DType::string;
  const size_t texts = attrs.list<std::string>("pool_strings").size();
  const size_t numbers = attrs.list<int64_t>("pool_int64s").size();
  c.require(strings ? texts > 0 && numbers == 0 : numbers > 0 && texts == 0,
            "X is {}, it has {} pool_strings and {} pool_int64s", c.dtype(), texts, numbers);
  const auto size = static_cast<int64_t>(strings ? texts : numbers);
  const auto& counts = attrs.ints("ngram_counts");
  int64_t grams = 0;
  for (size_t n = 0; n < counts.size(); ++n) {
    const int64_t end = n + 1 < counts.size() ? counts[n + 1] : size;
    c.require((n > 0 || counts[0] == 0) && counts[n] <= end && end <= size,
              "ngram_counts are {}, the pool has {} items", counts, size);
    const int64_t items = end - counts[n], length = static_cast<int64_t>(n) + 1;
    c.require(items % length == 0, "the pool has {} items of grams of {}", items, length);
    grams += items / length;
  }
  return grams;
}

void infer_tf_idf(InferContext& c) {
  check_lengths(c);
  const int64_t grams = check_pool(c);
  const auto& indexes = c.attrs().ints("ngram_indexes");
  c.require(static_cast<int64_t>(indexes.size()) == grams,
            "it has {} ngram_indexes, the pool has {} grams", indexes.size(), grams);
  const auto [least, most] = std::minmax_element(indexes.begin(), indexes.end());
  c.require(!indexes.empty() && *least >= 0 && *most < INT32_MAX,
            "ngram_indexes are not all 0 or more");
  const auto& weights = c.attrs().list<double>("weights");
  c.require(weights.empty() || static_cast<int64_t>(weights.size()) == grams,
            "it has {} weights, the pool has {} grams", weights.size(), grams);
  if (!c.ranked(0)) return c.out(0, DType::f32, std::nullopt);
  c.require(c.rank() == 1 || c.rank() == 2, "X has shape {}, expected [C] or [N, C]", c.dims());
  Dims dims{*most + 1};
  if (c.rank() == 2) dims.insert(dims.begin(), c.dims()[0]);
  c.out(0, DType::f32, std::move(dims));
}

}  // namespace

static void register_tf_idf(OpSet& ops) {
  OpSchema& op = ops.op("TfIdfVectorizer")
                     .in("X", bit(DType::string) | kIndex)
                     .out("Y", bit(DType::f32), "Y")
                     .since(9);
  for (const char* name : {"max_gram_length", "max_skip_count", "min_gram_length", "mode",
                           "ngram_counts", "ngram_indexes"})
    op.attr_required(name);
  op.attr_optional("pool_int64s")
      .attr_optional("pool_strings")
      .attr_optional("weights")
      .shape(infer_tf_idf)
      .not_differentiable();
}

const Family<OpSet> kTfIdfOps("ops", "text/tf_idf", register_tf_idf);

}  // namespace ort
