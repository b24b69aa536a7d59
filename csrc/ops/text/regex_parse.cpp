// Parsing of regular expressions.
#include <algorithm>
#include <optional>

#include "csrc/core/error.h"
#include "csrc/ops/text/case.h"
#include "csrc/ops/text/regex_tree.h"

namespace ort::regex {
namespace {

constexpr int kMostRepeats = 1000, kMostDepth = 200;
constexpr uint32_t kLast = 0x10ffff;
using Ranges = std::vector<std::pair<uint32_t, uint32_t>>;
using PartPtr = std::unique_ptr<Part>;

struct Flags {
  bool folds = false, dot_is_all = false, lines = false;
};

const Ranges kDigits = {{'0', '9'}};
const Ranges kWords = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const Ranges kSpaces = {{'\t', '\n'}, {'\f', '\r'}, {' ', ' '}};

// All characters that are in none of the ranges.
Ranges others(Ranges ranges) {
  std::sort(ranges.begin(), ranges.end());
  Ranges made;
  uint32_t from = 0;
  for (const auto& [first, last] : ranges) {
    if (first > from) made.emplace_back(from, first - 1);
    from = std::max(from, last + 1);
  }
  if (from <= kLast) made.emplace_back(from, kLast);
  return made;
}

Ranges named_class(const std::string& name) {
  if (name == "alnum") return {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}};
  if (name == "alpha") return {{'A', 'Z'}, {'a', 'z'}};
  if (name == "ascii") return {{0, 127}};
  if (name == "blank") return {{'\t', '\t'}, {' ', ' '}};
  if (name == "cntrl") return {{0, 31}, {127, 127}};
  if (name == "digit") return kDigits;
  if (name == "graph") return {{'!', '~'}};
  if (name == "lower") return {{'a', 'z'}};
  if (name == "print") return {{' ', '~'}};
  if (name == "punct") return {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}};
  if (name == "space") return {{'\t', '\r'}, {' ', ' '}};
  if (name == "upper") return {{'A', 'Z'}};
  if (name == "word") return kWords;
  check(name == "xdigit", "[:{}:] is no class", name);
  return {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
}

class Parser {
 public:
  explicit Parser(const std::string& text) : text_(text) {}

  PartPtr whole() {
    PartPtr made = choice();
    check(at_ == text_.size(), "')' at {} has no '('", at_);
    return made;
  }

 private:
  bool ends() const { return at_ == text_.size(); }
  bool sees(char c) const { return !ends() && text_[at_] == c; }
  bool takes(std::string_view what) {
    if (text_.compare(at_, what.size(), what) != 0) return false;
    at_ += what.size();
    return true;
  }
  uint32_t character() {
    check(!ends(), "it ends too early");
    const auto [code, bytes] = utf8::character_at(text_, at_);
    check(code != utf8::kNoCharacter, "byte {} is no UTF-8", at_);
    at_ += bytes;
    return code;
  }

  PartPtr of(Part::Kind kind) const {
    auto made = std::make_unique<Part>();
    made->kind = kind;
    return made;
  }
  PartPtr place(At at) const {
    PartPtr made = of(Part::Kind::at);
    made->at = at;
    return made;
  }
  PartPtr one_of(Ranges ranges, bool negated = false) const {
    PartPtr made = of(Part::Kind::set);
    made->set = {std::move(ranges), negated, flags_.folds};
    return made;
  }

  // Flags that are set in a group hold to its end.
  PartPtr choice() {
    check(++depth_ <= kMostDepth, "groups are more than {} deep", kMostDepth);
    const Flags around = flags_;
    PartPtr made = of(Part::Kind::choice);
    do made->parts.push_back(sequence());
    while (takes("|"));
    flags_ = around;
    --depth_;
    return made;
  }

  PartPtr sequence() {
    PartPtr made = of(Part::Kind::sequence);
    while (!ends() && !sees('|') && !sees(')'))
      if (PartPtr next = atom()) made->parts.push_back(repeated(std::move(next)));
    return made;
  }

  PartPtr repeated(PartPtr what) {
    auto bounds = quantifier();
    if (!bounds) return what;
    PartPtr made = of(Part::Kind::repeat);
    std::tie(made->least, made->most) = *bounds;
    made->parts.push_back(std::move(what));
    takes("?");  // which one is found first does not matter
    check(!quantifier(), "two repetitions follow each other before {}", at_);
    return made;
  }

  std::optional<std::pair<int, int>> quantifier() {
    if (takes("*")) return std::pair{0, -1};
    if (takes("+")) return std::pair{1, -1};
    if (takes("?")) return std::pair{0, 1};
    const size_t start = at_;
    if (!takes("{")) return {};
    const auto least = number();
    auto most = least;
    if (least && takes(",")) most = sees('}') ? std::optional(-1) : number();
    if (!least || !most || !takes("}")) {
      at_ = start;  // a brace like any other character
      return {};
    }
    check(*least <= kMostRepeats && *most <= kMostRepeats && (*most < 0 || *least <= *most),
          "repetition at {} is not of 0 to {} in order", start, kMostRepeats);
    return std::pair{*least, *most};
  }

  std::optional<int> number() {
    std::optional<int> value;
    for (; !ends() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
      value = std::min(value.value_or(0) * 10 + (text_[at_] - '0'), kMostRepeats + 1);
    return value;
  }

  // Null where it was flags alone.
  PartPtr atom() {
    if (takes("(")) return group();
    if (takes("[")) return character_class();
    if (takes(".")) return one_of(flags_.dot_is_all ? Ranges{{0, kLast}} : others({{'\n', '\n'}}));
    if (takes("^")) return place(flags_.lines ? At::line_begin : At::begin);
    if (takes("$")) return place(flags_.lines ? At::line_end : At::end);
    if (takes("\\")) return escape();
    check(!sees('*') && !sees('+') && !sees('?'), "'{}' at {} repeats nothing", text_[at_], at_);
    const uint32_t code = character();
    return one_of({{code, code}});
  }

  PartPtr group() {
    if (takes("?P<") || takes("?<")) {
      const size_t end = text_.find('>', at_);
      const std::string name = text_.substr(at_, end - at_);
      const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
        return c == '_' || std::isalnum(static_cast<unsigned char>(c));
      });
      check(end != std::string::npos && plain, "a group at {} has no name", at_);
      at_ = end + 1;
    } else if (takes("?")) {
      const Flags around = flags_;
      read_flags();
      if (takes(")")) return nullptr;
      check(takes(":"), "what follows '(?' at {} is not known", at_);
      PartPtr made = closed();
      flags_ = around;
      return made;
    }
    return closed();
  }

  PartPtr closed() {
    PartPtr made = choice();
    check(takes(")"), "a group has no ')'");
    return made;
  }

  void read_flags() {
    for (bool on = true; !ends() && text_[at_] != ':' && text_[at_] != ')'; ++at_) {
      const char flag = text_[at_];
      if (flag == '-')
        on = false;
      else if (flag == 'i')
        flags_.folds = on;
      else if (flag == 's')
        flags_.dot_is_all = on;
      else if (flag == 'm')
        flags_.lines = on;
      else
        check(flag == 'U', "'{}' at {} is no flag", flag, at_);
    }
  }

  // \d and the like; nullopt for others.
  std::optional<Ranges> class_of(char letter) const {
    switch (letter) {
      case 'd':
        return kDigits;
      case 'D':
        return others(kDigits);
      case 'w':
        return kWords;
      case 'W':
        return others(kWords);
      case 's':
        return kSpaces;
      case 'S':
        return others(kSpaces);
      default:
        return {};
    }
  }

  PartPtr escape() {
    check(!ends(), "it ends in a backslash");
    if (takes("b")) return place(At::word_edge);
    if (takes("B")) return place(At::no_word_edge);
    if (takes("A")) return place(At::begin);
    if (takes("z")) return place(At::end);
    if (auto ranges = class_of(text_[at_])) {
      ++at_;
      return one_of(std::move(*ranges));
    }
    const uint32_t code = escaped();
    return one_of({{code, code}});
  }

  uint32_t escaped() {
    constexpr std::string_view kNamed = "afnrtv", kCodes = "\a\f\n\r\t\v";
    const uint32_t code = character();
    if (code < 0x80 && kNamed.find(static_cast<char>(code)) != std::string_view::npos)
      return static_cast<uint32_t>(kCodes[kNamed.find(static_cast<char>(code))]);
    if (code == 'x') return hexadecimal();
    const bool letter = code < 0x80 && std::isalnum(static_cast<int>(code));
    check(!letter, "'\\{}' is not supported", static_cast<char>(code));
    return code;
  }

  uint32_t hexadecimal() {
    const bool braced = takes("{");
    uint32_t code = 0;
    size_t digits = 0;
    for (; !ends() && std::isxdigit(static_cast<unsigned char>(text_[at_])); ++at_, ++digits) {
      if (digits == (braced ? 6 : 2)) break;
      const char c = static_cast<char>(text_[at_] | 0x20);
      code = code * 16 + static_cast<uint32_t>(c >= 'a' ? c - 'a' + 10 : text_[at_] - '0');
    }
    check(braced ? takes("}") && digits > 0 : digits == 2, "'\\x' before {} has no code", at_);
    check(code <= kLast, "'\\x' before {} is no character", at_);
    return code;
  }

  PartPtr character_class() {
    const size_t start = at_ - 1;
    const bool negated = takes("^");
    Ranges ranges;
    for (bool first = true; first || !sees(']'); first = false) {
      check(!ends(), "'[' at {} has no ']'", start);
      add_member(ranges);
    }
    ++at_;
    return one_of(std::move(ranges), negated);
  }

  void add_member(Ranges& ranges) {
    const auto add = [&](const Ranges& more) {
      ranges.insert(ranges.end(), more.begin(), more.end());
    };
    if (takes("[:")) {
      const bool negated = takes("^");
      const size_t end = text_.find(":]", at_);
      check(end != std::string::npos, "'[:' before {} has no ':]'", at_);
      const Ranges named = named_class(text_.substr(at_, end - at_));
      at_ = end + 2;
      return add(negated ? others(named) : named);
    }
    if (sees('\\') && at_ + 1 < text_.size())
      if (const auto found = class_of(text_[at_ + 1])) {
        at_ += 2;
        return add(*found);
      }
    const uint32_t from = takes("\\") ? escaped() : character();
    uint32_t to = from;
    if (sees('-') && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
      ++at_;
      to = takes("\\") ? escaped() : character();
    }
    check(from <= to, "a range before {} ends before it begins", at_);
    ranges.emplace_back(from, to);
  }

  const std::string& text_;
  size_t at_ = 0;
  int depth_ = 0;
  Flags flags_;
};

}  // namespace

std::unique_ptr<Part> parsed(const std::string& pattern) {
  return Parser(pattern).whole();
}

}  // namespace ort::regex
