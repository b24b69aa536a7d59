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
  // Grammar: + - * // % ( ) max(a, b) min(a, b) broadcast(a, b), integers and identifiers; throws
  // on anything else.
  static Dim parse(std::string_view text);

  std::optional<int64_t> value() const;  // the number, when there is no symbol in it
  bool is(int64_t number) const { return value() == number; }
  int64_t evaluate(const Symbols& symbols) const;  // throws when a symbol is missing or on overflow
  void collect_symbols(std::set<std::string>& names) const;
  size_t parts() const;  // symbols and functions, counted as it is written
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
  enum class Kind : uint8_t { symbol, floor_div, mod, min, max, broadcast };
  Kind kind;
  std::string name;  // of a symbol
  Dim a, b;          // of the others
  size_t parts = 1;  // symbols and functions in it, counted as it is written
};

Dim floor_div(const Dim& a, const Dim& b);
Dim mod(const Dim& a, const Dim& b);
Dim min(const Dim& a, const Dim& b);
Dim max(const Dim& a, const Dim& b);
// The size of two that broadcast (they are equal, or one is 1): b where a is 1, else a.
Dim broadcast_size(const Dim& a, const Dim& b);
// Whether `whole` is a broadcast size that `part`, or each size which `part` joins, is one of.
bool is_joined(const Dim& part, const Dim& whole);
// What the dim is at least, whatever sizes (none negative) the symbols have; nullopt: not known.
std::optional<int64_t> lower_bound(const Dim& dim);
// a / b when b divides a as a polynomial for every value of the symbols.
std::optional<Dim> divide_exactly(const Dim& a, const Dim& b);

using Dims = std::vector<Dim>;
// False where both are numbers, and not the same one.
inline bool may_be_equal(const Dim& a, const Dim& b) {
  return !a.value() || !b.value() || a == b;
}
Dim product(const Dims& dims);
// The numbers of dims under a binding: those of a shape, which must not be negative, or of other
// shape operands (pads, starts).
Sizes sizes_of(const Dims& dims, const Symbols& symbols);
Sizes numbers_of(const Dims& dims, const Symbols& symbols);
std::ostream& operator<<(std::ostream& out, const Dim& dim);

// Checked arithmetic for concrete sizes: hostile files may name sizes that overflow.
int64_t checked_add(int64_t a, int64_t b);
int64_t checked_mul(int64_t a, int64_t b);
int64_t floor_quotient(int64_t a, int64_t b);
int64_t floor_remainder(int64_t a, int64_t b);  // of the sign of b
int64_t element_count(const Sizes& sizes);
// Whether offsets into a tensor of this shape can be computed: also where an axis is empty, and so
// the others may be of any size.
bool is_addressable(const Sizes& sizes, size_t element_bytes);

}  // namespace ort
