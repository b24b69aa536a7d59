// Strings taken apart into tokens.
#include <algorithm>

#include "csrc/core/pool.h"
#include "csrc/ops/text/case.h"
#include "csrc/ops/text/regex.h"
#include "providers/host_kernel.h"
#include "providers/kernel_table.h"

namespace ort {
namespace {

using Items = std::vector<Item>;
using Texts = std::vector<std::string>;
using Codes = std::vector<uint32_t>;

std::string text_of_codes(const Codes& codes) {
  std::string text;
  for (const uint32_t code : codes) utf8::append(text, code);
  return text;
}

Codes part(const Codes& text, size_t from, size_t to) {
  return {text.begin() + static_cast<ptrdiff_t>(from), text.begin() + static_cast<ptrdiff_t>(to)};
}

class Tokens {
 public:
  explicit Tokens(const Attrs& attrs) : least_(static_cast<size_t>(attrs.i("mincharnum"))) {
    const std::string& expression = attrs.s("tokenexp");
    searches_ = !expression.empty();
    Texts patterns = {expression};
    if (!searches_) patterns = attrs.list<std::string>("separators");
    letters_ = patterns.size() == 1 && patterns[0] == (searches_ ? "." : "");
    for (const std::string& pattern : patterns) patterns_.emplace_back(pattern);
  }

  std::vector<Codes> of(const Codes& text) const {
    if (letters_) return each_letter(text);
    if (searches_) return found_in(text);
    std::vector<Codes> tokens;
    if (text.size() >= least_) tokens.push_back(text);
    for (const regex::Pattern& separator : patterns_) {
      std::vector<Codes> smaller;
      for (const Codes& token : tokens) add_between(token, separator, smaller);
      tokens = std::move(smaller);
    }
    return tokens;
  }

 private:
  static std::vector<Codes> each_letter(const Codes& text) {
    std::vector<Codes> letters;
    for (const uint32_t code : text) letters.push_back({code});
    return letters;
  }

  // f(from, begin, end) of each match and where the search for it began; where the last one began.
  template <class F>
  static size_t each_match(const Codes& text, const regex::Pattern& pattern, const F& f) {
    size_t from = 0;
    while (from <= text.size()) {
      const auto match = pattern.find(text, from);
      if (!match) break;
      f(from, match->first, match->second);
      from = match->second + (match->first == match->second);
    }
    return from;
  }

  std::vector<Codes> found_in(const Codes& text) const {
    std::vector<Codes> tokens;
    each_match(text, patterns_[0], [&](size_t, size_t begin, size_t end) {
      if (end - begin >= least_) tokens.push_back(part(text, begin, end));
    });
    return tokens;
  }

  void add_between(const Codes& text, const regex::Pattern& separator,
                   std::vector<Codes>& tokens) const {
    const auto add = [&](size_t from, size_t to) {
      if (from < to && to - from >= least_) tokens.push_back(part(text, from, to));
    };
    const size_t last =
        each_match(text, separator, [&](size_t from, size_t begin, size_t) { add(from, begin); });
    add(last, text.size());
  }

  size_t least_;
  bool searches_ = false, letters_ = false;
  std::vector<regex::Pattern> patterns_;
};

Items tokenize(const HostCall& c) {
  const Tensor& x = c.tensor();
  c.require(x.sizes.size() == 1 || x.sizes.size() == 2, "X has shape {}, expected [C] or [N, C]",
            x.sizes);
  const Tokens tokens(c.attrs());
  const bool marks = c.attrs().i("mark") != 0;
  std::vector<Texts> rows;
  size_t longest = 0;
  for (int64_t i = 0; i < x.count(); ++i) {
    Texts row;
    const Codes text = utf8::characters(text_of(x, i));
    c.require(std::find(text.begin(), text.end(), utf8::kNoCharacter) == text.end(),
              "string {} is no UTF-8", i);
    for (const Codes& token : tokens.of(text)) row.push_back(text_of_codes(token));
    longest = std::max(longest, row.size());
    rows.push_back(std::move(row));
  }
  if (marks && longest > 0) {  // of no token at all nothing is left to mark
    longest += 2;
    for (Texts& row : rows) {
      row.insert(row.begin(), "\x02");
      row.emplace_back("\x03");
    }
  }
  Sizes sizes = x.sizes;
  sizes.push_back(static_cast<int64_t>(longest));
  check_memory(static_cast<size_t>(checked_mul(element_count(sizes), sizeof(std::string))));
  Texts texts;
  for (Texts& row : rows) {
    row.resize(longest, c.attrs().s("pad_value"));
    std::move(row.begin(), row.end(), std::back_inserter(texts));
  }
  return {Tensor::of_strings(std::move(texts), sizes)};
}

}  // namespace

static void register_host_tokenizer(HostTable& table) {
  table["com.microsoft::Tokenizer"] = {kAny, tokenize};
}

const Family<HostTable> kTokenizerKernels("host", "text/tokenizer", register_host_tokenizer);

}  // namespace ort
