// Strings that are made of strings.
#include <algorithm>
#include <unordered_set>

#include "csrc/core/pool.h"
#include "csrc/ops/text/case.h"
#include "providers/host_kernel.h"
#include "providers/kernel_table.h"

namespace ort {
namespace {

using Items = std::vector<Item>;
using Texts = std::vector<std::string>;

Sizes joined_sizes(const HostCall& c, const Sizes& a, const Sizes& b) {
  Sizes sizes(std::max(a.size(), b.size()), 1);
  for (size_t d = 0; d < sizes.size(); ++d) {
    const auto of = [&](const Sizes& x) {
      return d + x.size() < sizes.size() ? 1 : x[d + x.size() - sizes.size()];
    };
    c.require(of(a) == of(b) || of(a) == 1 || of(b) == 1, "shapes {} and {} do not broadcast", a,
              b);
    sizes[d] = of(a) == 1 ? of(b) : of(a);
  }
  return sizes;
}

Items concat(const HostCall& c) {
  const Tensor &a = c.tensor(0), &b = c.tensor(1);
  const Sizes sizes = joined_sizes(c, a.sizes, b.sizes);
  const Sizes by_a = broadcast_strides(a.sizes, sizes), by_b = broadcast_strides(b.sizes, sizes);
  const int64_t count = element_count(sizes);
  Texts texts;
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, at_a = 0, at_b = 0;
    for (size_t d = sizes.size(); d-- > 0; rest /= sizes[d]) {
      at_a += rest % sizes[d] * by_a[d];
      at_b += rest % sizes[d] * by_b[d];
    }
    texts.push_back(text_of(a, at_a) + text_of(b, at_b));
  }
  return {Tensor::of_strings(std::move(texts), sizes)};
}

// --- StringSplit ---

// At most `most` cuts; what is left is the last part.
Texts parts_between(const std::string& text, const std::string& delimiter, uint64_t most) {
  Texts parts;
  size_t from = 0;
  for (; parts.size() < most; from += delimiter.size()) {
    const size_t at = text.find(delimiter, from);
    if (at == std::string::npos) break;
    parts.push_back(text.substr(from, at - from));
    from = at;
  }
  parts.push_back(text.substr(from));
  return parts;
}

// White space as Unicode has it, and ASCII's four separators.
bool is_space(uint32_t code) {
  if (code <= 0x20) return code == 0x20 || (code >= 0x09 && code <= 0x0d) || code >= 0x1c;
  return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
         code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

// Where the next white space from `at` on is, or the next that is none; the end where there is
// neither.
size_t next(const std::string& text, size_t at, bool space) {
  while (at < text.size()) {
    const auto [code, bytes] = utf8::character_at(text, at);
    if (is_space(code) == space) break;
    at += bytes;
  }
  return at;
}

Texts words_of(const std::string& text, uint64_t most) {
  Texts words;
  for (size_t from = next(text, 0, false); from < text.size();) {
    const size_t end = words.size() < most ? next(text, from, true) : text.size();
    words.push_back(text.substr(from, end - from));
    from = next(text, end, false);
  }
  return words;
}

Items split(const HostCall& c) {
  const Tensor& x = c.tensor();
  const std::string& delimiter = c.attrs().s("delimiter");
  const auto most = static_cast<uint64_t>(c.attrs().i("maxsplit"));  // below 0: without end
  std::vector<Texts> parts;
  size_t longest = 0;
  Tensor counts = Tensor::empty(DType::i64, x.sizes);
  for (int64_t i = 0; i < x.count(); ++i) {
    const std::string& text = text_of(x, i);
    parts.push_back(delimiter.empty() ? words_of(text, most)
                                      : parts_between(text, delimiter, most));
    counts.as<int64_t>()[i] = static_cast<int64_t>(parts.back().size());
    longest = std::max(longest, parts.back().size());
  }
  Texts texts;
  Sizes sizes = x.sizes;
  sizes.push_back(static_cast<int64_t>(longest));
  check_memory(static_cast<size_t>(checked_mul(element_count(sizes), sizeof(std::string))));
  for (Texts& each : parts) {
    each.resize(longest);
    std::move(each.begin(), each.end(), std::back_inserter(texts));
  }
  Items results = {Tensor::of_strings(std::move(texts), sizes)};
  if (c.node().out.size() > 1) results.emplace_back(std::move(counts));
  return results;
}

// --- StringNormalizer ---

Items normalize(const HostCall& c) {
  const Tensor& x = c.tensor();
  c.require(x.sizes.size() == 1 || (x.sizes.size() == 2 && x.sizes[0] == 1),
            "X has shape {}, expected [C] or [1, C]", x.sizes);
  const std::string& action = c.attrs().s("case_change_action");
  const auto cased = [&](const std::string& text) {
    if (action == "NONE") return text;
    return utf8::mapped(text, action == "LOWER" ? utf8::kToLower : utf8::kToUpper);
  };
  const bool exact = c.attrs().i("is_case_sensitive") != 0;
  const auto compared = [&](const std::string& text) {
    return exact ? text : utf8::mapped(text, utf8::kToLower);
  };
  std::unordered_set<std::string> stops;
  for (const std::string& word : c.attrs().list<std::string>("stopwords"))
    stops.insert(compared(word));
  Texts texts;
  for (int64_t i = 0; i < x.count(); ++i) {
    const std::string& text = text_of(x, i);
    if (stops.empty() || stops.count(compared(text)) == 0) texts.push_back(cased(text));
  }
  if (texts.empty()) texts.emplace_back();
  const auto count = static_cast<int64_t>(texts.size());
  return {
      Tensor::of_strings(std::move(texts), x.sizes.size() == 1 ? Sizes{count} : Sizes{1, count})};
}

}  // namespace

static void register_host_strings(HostTable& table) {
  table["StringConcat"] = {kAny, concat};
  table["StringSplit"] = {kAny, split};
  table["StringNormalizer"] = {kAny, normalize};
}

const Family<HostTable> kStringsKernels("host", "text/strings", register_host_strings);

}  // namespace ort
