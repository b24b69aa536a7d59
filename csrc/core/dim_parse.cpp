// The text of a size expression, read back.
#include <cctype>

#include "csrc/core/dim.h"
#include "csrc/core/error.h"

namespace ort {
namespace {

constexpr size_t kMaxText = 20000;  // characters; no model comes near it

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {
    check(text.size() <= kMaxText, "a size expression has {} characters, at most {}", text.size(),
          kMaxText);
  }
  Dim parse() {
    Dim result = sum();
    skip();
    check(at_ == text_.size(), "size expression '{}': unexpected text at {}", text_, at_);
    return result;
  }

 private:
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool eat(std::string_view token) {
    skip();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  Dim sum() {
    Dim left = term();
    for (;;) {
      if (eat("+"))
        left = left + term();
      else if (eat("-"))
        left = left - term();
      else
        return left;
    }
  }
  Dim term() {
    Dim left = factor();
    for (;;) {
      if (eat("//"))
        left = floor_div(left, factor());
      else if (eat("*"))
        left = left * factor();
      else if (eat("%"))
        left = mod(left, factor());
      else
        return left;
    }
  }
  Dim factor() {
    check(++depth_ < 200, "size expression '{}' is nested too deeply", text_.substr(0, 80));
    skip();
    Dim result = primary();
    --depth_;
    return result;
  }
  Dim primary() {
    if (eat("-")) return Dim(0) - factor();
    if (eat("(")) {
      Dim inner = sum();
      check(eat(")"), "size expression '{}': missing ')'", text_);
      return inner;
    }
    check(at_ < text_.size(), "size expression '{}' ends early", text_);
    if (std::isdigit(static_cast<unsigned char>(text_[at_]))) return number();
    const std::string word = identifier();
    for (const auto& [name, combine] : kFunctions)
      if (word == name && eat("(")) return call(combine);
    return Dim::symbol(word);
  }
  Dim number() {
    int64_t value = 0;
    while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])))
      value = checked_add(checked_mul(value, 10), text_[at_++] - '0');
    return value;
  }
  std::string identifier() {
    const size_t start = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) ||
                                  text_[at_] == '_' || text_[at_] == '.' || text_[at_] == '$'))
      ++at_;
    check(at_ > start, "size expression '{}': unexpected '{}'", text_, text_[start]);
    return std::string(text_.substr(start, at_ - start));
  }
  using Combine = Dim (*)(const Dim&, const Dim&);
  static constexpr std::pair<std::string_view, Combine> kFunctions[] = {
      {"max", max}, {"min", min}, {"broadcast", broadcast_size}};
  Dim call(Combine combine) {
    Dim left = sum();
    while (eat(",")) left = combine(left, sum());
    check(eat(")"), "size expression '{}': missing ')'", text_);
    return left;
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

Dim Dim::parse(std::string_view text) {
  return Parser(text).parse();
}

}  // namespace ort
