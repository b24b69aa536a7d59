// Symbolic sizes: canonical integer expressions (polynomials over symbols, floor-div, mod, min,
// max). Two dims are the same size exactly when they are canonically equal.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ort {

using Sizes = std::vector<int64_t>;
using Symbols = std::map<std::string, int64_t, std::less<>>;  // a binding: values of the symbols

struct Atom;  // an interned symbol or non-polynomial sub-expression

class Dim {
 public:
  Dim(int64_t value = 0);  // NOLINT: an int is a dim
  static Dim symbol(std::string_view name);
  // Grammar: + - * // % ( ) max(a, b) min(a, b), integers and identifiers; throws on anything else.
  static Dim parse(std::string_view text);

  std::optional<int64_t> value() const;  // the number, when there is no symbol in it
  bool is(int64_t number) const { return value() == number; }
  int64_t evaluate(const Symbols& symbols) const;  // throws when a symbol is missing or on overflow
  void collect_symbols(std::set<std::string>& names) const;
  std::string text() const;
  std::optional<std::string> symbol_name() const;  // when the dim is one symbol and nothing else
  // The polynomial as text-free terms: each a coefficient and its atoms (for printing and
  // lowering).
  using Product = std::vector<const Atom*>;
  const std::map<Product, int64_t>& terms() const { return terms_; }

  friend Dim operator+(const Dim& a, const Dim& b);
  friend Dim operator-(const Dim& a, const Dim& b);
  friend Dim operator*(const Dim& a, const Dim& b);
  friend bool operator==(const Dim& a, const Dim& b) { return a.terms_ == b.terms_; }
  friend std::optional<Dim> divide_exactly(const Dim& a, const Dim& b);

 private:
  friend Dim from_atom(const Atom* atom);
  std::map<Product, int64_t> terms_;  // empty: zero
};

struct Atom {
  enum class Kind : uint8_t { symbol, floor_div, mod, min, max };
  Kind kind;
  std::string name;  // of a symbol
  Dim a, b;          // of the others
};

Dim floor_div(const Dim& a, const Dim& b);
Dim mod(const Dim& a, const Dim& b);
Dim min(const Dim& a, const Dim& b);
Dim max(const Dim& a, const Dim& b);
// a / b when b divides a as a polynomial for every value of the symbols.
std::optional<Dim> divide_exactly(const Dim& a, const Dim& b);

using Dims = std::vector<Dim>;
Dim product(const Dims& dims);
std::ostream& operator<<(std::ostream& out, const Dim& dim);

// Checked arithmetic for concrete sizes: hostile files may name sizes that overflow.
int64_t checked_add(int64_t a, int64_t b);
int64_t checked_mul(int64_t a, int64_t b);
int64_t element_count(const Sizes& sizes);

}  // namespace ort
