// Parsing of regular expressions.
#include <algorithm>
#include <optional>

#include "csrc/core/error.h"
#include "csrc/ops/text/case.h"
#include "csrc/ops/text/regex_tree.h"

namespace ort::regex {
namespace {

constexpr int kMostRepeats = 1000, kMostDepth = 200;
using PartPtr = std::unique_ptr<Part>;

struct Flags {
  bool folds = false, dot_is_all = false, lines = false;
};

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
  Ranges cased(Ranges ranges) const {
    return flags_.folds ? in_any_case(std::move(ranges)) : joined(std::move(ranges));
  }
  Ranges one_or_others(const Ranges& ranges, bool negated) const {
    return negated ? others(cased(ranges)) : ranges;
  }
  PartPtr one_of(Ranges ranges, bool negated = false) const {
    PartPtr made = of(Part::Kind::set);
    ranges = cased(std::move(ranges));
    made->set = negated ? others(ranges) : std::move(ranges);
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
    while (quotes() || (!ends() && !sees('|') && !sees(')'))) {
      PartPtr next = quoted_ ? literal() : atom();
      if (!next && !made->parts.empty()) {  // a repetition behind flags is of what is before them
        next = std::move(made->parts.back());
        made->parts.pop_back();
      }
      if (next) made->parts.push_back(repeated(std::move(next)));
    }
    return made;
  }

  // Whether what follows is a letter between \Q and \E, which are passed here.
  bool quotes() {
    while (takes(quoted_ ? "\\E" : "\\Q")) quoted_ = !quoted_;
    return quoted_ && !ends();
  }

  PartPtr literal() {
    const uint32_t code = character();
    return one_of({{code, code}});
  }

  PartPtr repeated(PartPtr what) {
    if (quotes()) return what;
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
    if (sees('\\')) return escape();
    const size_t start = at_;
    check(!quantifier(), "'{}' at {} repeats nothing", text_[start], start);
    return literal();
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
    bool on = true, open = false;  // open: behind a minus without a flag
    for (; !ends() && text_[at_] != ':' && text_[at_] != ')'; ++at_) {
      const char flag = text_[at_];
      open = flag == '-' && on;
      if (open)
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
    check(!open, "'-' before {} has no flag", at_);
  }

  // \d and the like, \pL, \p{Greek}, passed where it is one.
  std::optional<Ranges> class_escape() {
    if (!sees('\\') || at_ + 1 == text_.size()) return {};
    const char letter = text_[at_ + 1];
    bool negated = std::isupper(static_cast<unsigned char>(letter)) != 0;
    std::optional<Ranges> found = lettered(static_cast<char>(letter | 0x20));
    const bool unicode = (letter | 0x20) == 'p';
    if (!found && !unicode) return {};
    at_ += 2;
    if (unicode) found = unicode_class(class_name(negated));
    return one_or_others(*found, negated);
  }

  // One letter, or what stands in braces; '^' turns it round.
  std::string class_name(bool& negated) {
    if (!takes("{")) {
      const size_t start = at_;
      character();
      return text_.substr(start, at_ - start);
    }
    if (takes("^")) negated = !negated;
    const size_t end = text_.find('}', at_);
    check(end != std::string::npos, "'{' before {} has no '}'", at_);
    const std::string name = text_.substr(at_, end - at_);
    at_ = end + 1;
    return name;
  }

  PartPtr escape() {
    if (auto ranges = class_escape()) return one_of(std::move(*ranges));
    ++at_;
    check(!ends(), "it ends in a backslash");
    if (takes("b")) return place(At::word_edge);
    if (takes("B")) return place(At::no_word_edge);
    if (takes("A")) return place(At::begin);
    if (takes("z")) return place(At::end);
    const uint32_t code = escaped();
    return one_of({{code, code}});
  }

  uint32_t escaped() {
    constexpr std::string_view kNamed = "afnrtv", kCodes = "\a\f\n\r\t\v";
    const size_t start = at_;
    const uint32_t code = character();
    if (code < 0x80 && kNamed.find(static_cast<char>(code)) != std::string_view::npos)
      return static_cast<uint32_t>(kCodes[kNamed.find(static_cast<char>(code))]);
    if (code == 'x') return hexadecimal();
    if (code == '0' || (is_octal(code) && !ends() && is_octal(static_cast<uint8_t>(text_[at_]))))
      return octal(code - '0');
    const bool sign = code < 0x80 && !std::isalnum(static_cast<int>(code));
    check(sign, "'\\{}' is not supported", text_.substr(start, at_ - start));
    return code;
  }

  static bool is_octal(uint32_t code) { return code >= '0' && code <= '7'; }

  // Its first digit is read; up to two more follow.
  uint32_t octal(uint32_t code) {
    for (int i = 0; i < 2 && !ends() && is_octal(static_cast<uint8_t>(text_[at_])); ++i, ++at_)
      code = code * 8 + static_cast<uint32_t>(text_[at_] - '0');
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

  // [:alpha:] and the like, passed where it is one; '[:' without ':]' is two characters.
  std::optional<Ranges> class_between_colons() {
    const size_t end = text_.find(":]", at_ + 2);
    if (end == std::string::npos || !takes("[:")) return {};
    const bool negated = takes("^");
    const Ranges named = named_class(text_.substr(at_, end - at_));
    at_ = end + 2;
    return one_or_others(named, negated);
  }

  void add_member(Ranges& ranges) {
    const auto add = [&](const Ranges& more) {
      ranges.insert(ranges.end(), more.begin(), more.end());
    };
    if (const auto found = class_between_colons()) return add(*found);
    if (const auto found = class_escape()) return add(*found);
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
  bool quoted_ = false;
  Flags flags_;
};

}  // namespace

std::unique_ptr<Part> parsed(const std::string& pattern) {
  return Parser(pattern).whole();
}

}  // namespace ort::regex
