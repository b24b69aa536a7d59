// Counts of n-grams, by a tree of their items.
#include <map>
#include <unordered_map>

#include "csrc/core/parallel.h"
#include "providers/reference/reference.h"

namespace ort::reference {
namespace {

// The pool's grams; items are numbers, or strings by their number in the pool.
class Grams {
 public:
  explicit Grams(const Attrs& attrs)
      : least_(attrs.i("min_gram_length")), most_(attrs.i("max_gram_length")) {
    std::vector<int64_t> pool;
    words_ = attrs.list<std::string>("pool_strings");
    if (!words_.empty()) {
      for (const std::string& word : words_)
        pool.push_back(numbers_.try_emplace(word, numbers_.size()).first->second);
    } else {
      pool = attrs.ints("pool_int64s");
    }
    add_all(pool, attrs.ints("ngram_counts"));
  }

  // An item that is no word of the pool is none of its grams'.
  int64_t number_of(const std::string* text) const {
    const auto found = numbers_.find(text ? std::string_view(*text) : std::string_view());
    return found == numbers_.end() ? -1 : found->second;
  }

  // Counts each of them among the items, `distance` apart, that has `least` items or more.
  void count(std::span<const int64_t> items, size_t distance, int64_t least,
             std::vector<int64_t>& counts) const {
    for (size_t start = 0; start < items.size(); ++start) {
      int32_t node = 0;
      int64_t length = 1;
      for (size_t at = start; at < items.size() && length <= most_; at += distance, ++length) {
        const auto next = next_.find({node, items[at]});
        if (next == next_.end()) break;
        node = next->second;
        const int64_t gram = gram_[static_cast<size_t>(node)];
        if (gram >= 0 && length >= least) ++counts[static_cast<size_t>(gram)];
      }
    }
  }

  int64_t least() const { return least_; }
  int64_t most() const { return most_; }

 private:
  void add_all(const std::vector<int64_t>& pool, const std::vector<int64_t>& counts) {
    int64_t gram = 0;
    for (size_t n = 0; n < counts.size(); ++n) {
      const auto length = static_cast<int64_t>(n) + 1;
      const int64_t end = n + 1 < counts.size() ? counts[n + 1] : static_cast<int64_t>(pool.size());
      for (int64_t from = counts[n]; from < end; from += length, ++gram)
        if (length >= least_ && length <= most_) add(pool.data() + from, length, gram);
    }
  }

  void add(const int64_t* items, int64_t length, int64_t gram) {
    int32_t node = 0;
    for (int64_t i = 0; i < length; ++i) {
      const auto [next, added] =
          next_.try_emplace({node, items[i]}, static_cast<int32_t>(gram_.size()));
      if (added) gram_.push_back(-1);
      node = next->second;
    }
    gram_[static_cast<size_t>(node)] = gram;
  }

  int64_t least_, most_;
  std::vector<std::string> words_;
  std::unordered_map<std::string_view, int64_t> numbers_;
  std::map<std::pair<int32_t, int64_t>, int32_t> next_;  // by node and item
  std::vector<int64_t> gram_ = {-1};                     // that ends in each node
};

struct Call {
  Grams grams;
  DType dtype;
  int64_t rows, items, outputs, skips;
  std::string mode;
  std::vector<int64_t> indexes;  // of each gram, among the outputs
  std::vector<double> weights;   // of each gram; empty: ones

  explicit Call(const Request& r)
      : grams(r.attrs()),
        dtype(r.in(0).dtype),
        rows(r.sizes(0).size() == 1 ? 1 : r.sizes(0)[0]),
        items(r.sizes(0).back()),
        outputs(r.out().sizes.back()),
        skips(std::min(r.attrs().i("max_skip_count"), items)),
        mode(r.attrs().s("mode")),
        indexes(r.attrs().ints("ngram_indexes")) {
    if (mode != "TF") weights = r.attrs().list<double>("weights");
  }

  // Grams of one item are counted once, whatever is skipped. Several grams may have one output: it
  // is their sum, or in mode IDF what the last one has.
  void row(std::span<const int64_t> items, std::vector<int64_t>& counts, float* y) const {
    std::fill(counts.begin(), counts.end(), 0);
    for (int64_t skip = 0; skip <= skips; ++skip)
      grams.count(items, static_cast<size_t>(skip) + 1,
                  skip == 0 ? grams.least() : std::max<int64_t>(grams.least(), 2), counts);
    for (size_t gram = 0; gram < counts.size(); ++gram) {
      if (counts[gram] == 0) continue;
      const auto weight = weights.empty() ? 1.0f : static_cast<float>(weights[gram]);
      float& to = y[indexes[gram]];
      to = mode == "IDF" ? weight : to + static_cast<float>(counts[gram]) * weight;
    }
  }

  void run(const Args& args) const {
    float* y = output<float>(args);
    std::fill_n(y, rows * outputs, 0.0f);
    parallel_for(rows, rows * items * (skips + 1) * 16, [&](int64_t begin, int64_t end, int) {
      std::vector<int64_t> numbers(static_cast<size_t>(items)), counts(indexes.size());
      for (int64_t n = begin; n < end; ++n) {
        for (int64_t i = 0; i < items; ++i)
          numbers[static_cast<size_t>(i)] =
              dtype == DType::string
                  ? grams.number_of(input<const std::string*>(args, 0)[n * items + i])
                  : reader<int64_t>(dtype, args.in[0])[n * items + i];
        row(numbers, counts, y + n * outputs);
      }
    });
  }
};

std::unique_ptr<Kernel> tf_idf(const Request& r) {
  const auto call = std::make_shared<const Call>(r);
  return make_kernel("n-grams", [=](const Args& args) { call->run(args); });
}

}  // namespace

static void register_reference_tf_idf(KernelTable& table) {
  table.op("TfIdfVectorizer").add("n-grams", kAny, tf_idf);
}

const Family<KernelTable> kTfIdfKernels("reference", "text/tf_idf", register_reference_tf_idf);

}  // namespace ort::reference
