// Canonical arithmetic of symbolic sizes, their evaluation and their text.
#include "csrc/core/dim.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <sstream>
#include <unordered_map>

#include "csrc/core/error.h"
#include "csrc/core/mutex.h"

namespace ort {
namespace {

// Hostile files write sizes that double with each node; no model comes near these.
constexpr size_t kMaxParts = 1000;   // of an expression, counted as it is written
constexpr size_t kMaxFactors = 100;  // of one product
constexpr size_t kMaxTerms = 400;    // of one sum

// Atoms are interned for the life of the process, so that equality is identity. Ordered by text, so
// that canonical order does not depend on addresses.
const Atom* intern(Atom atom, const std::string& key) {
  static auto& mutex = *new Mutex;
  static std::unordered_map<std::string, std::unique_ptr<Atom>>* atoms =
      new std::unordered_map<std::string, std::unique_ptr<Atom>>();
  std::lock_guard lock(mutex);
  auto& slot = (*atoms)[key];
  if (!slot) slot = std::make_unique<Atom>(std::move(atom));
  return slot.get();
}

// A sum, a product or a negative number keeps its own brackets beside // and %.
std::string operand_text(const Dim& dim) {
  const auto& terms = dim.terms();
  const bool plain =
      terms.size() == 1 && terms.begin()->first.size() == 1 && terms.begin()->second == 1;
  const std::string text = dim.text();
  return plain || dim.value().value_or(-1) >= 0 ? text : "(" + text + ")";
}

std::string atom_text(const Atom& atom) {
  switch (atom.kind) {
    case Atom::Kind::symbol:
      return atom.name;
    case Atom::Kind::floor_div:
      return "(" + operand_text(atom.a) + " // " + operand_text(atom.b) + ")";
    case Atom::Kind::mod:
      return "(" + operand_text(atom.a) + " % " + operand_text(atom.b) + ")";
    case Atom::Kind::min:
      return "min(" + atom.a.text() + ", " + atom.b.text() + ")";
    case Atom::Kind::max:
      return "max(" + atom.a.text() + ", " + atom.b.text() + ")";
    case Atom::Kind::broadcast:
      return "broadcast(" + atom.a.text() + ", " + atom.b.text() + ")";
  }
  return "?";
}

void add_bytes(std::string& key, const auto& value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// By the atoms in it and not by text: a symbol may be called as another expression reads.
void add_identity(std::string& key, const Dim& dim) {
  add_bytes(key, dim.terms().size());
  for (const auto& [atoms, coefficient] : dim.terms()) {
    add_bytes(key, atoms.size());
    for (const Atom* atom : atoms) add_bytes(key, atom);
    add_bytes(key, coefficient);
  }
}

const Atom* make_atom(Atom::Kind kind, std::string name, const Dim& a, const Dim& b) {
  Atom atom{kind, std::move(name), a, b, 1 + a.parts() + b.parts()};
  check(atom.parts <= kMaxParts, "a size expression has {} parts, at most {}", atom.parts,
        kMaxParts);
  std::string key;
  add_bytes(key, kind);
  add_identity(key, a);
  add_identity(key, b);
  key += atom.name;
  return intern(std::move(atom), key);
}

bool atom_less(const Atom* a, const Atom* b) {
  if (a == b) return false;
  const std::string x = atom_text(*a), y = atom_text(*b);
  return x != y ? x < y : std::less<>()(a, b);
}

int64_t evaluate_atom(const Atom& atom, const Symbols& symbols) {
  if (atom.kind == Atom::Kind::symbol) {
    const auto found = symbols.find(atom.name);
    check(found != symbols.end(), "size symbol '{}' has no value", atom.name);
    return found->second;
  }
  const int64_t a = atom.a.evaluate(symbols), b = atom.b.evaluate(symbols);
  switch (atom.kind) {
    case Atom::Kind::floor_div:
      return floor_quotient(a, b);
    case Atom::Kind::mod:
      return floor_remainder(a, b);
    case Atom::Kind::min:
      return std::min(a, b);
    case Atom::Kind::broadcast:
      return a == 1 ? b : a;
    default:
      return std::max(a, b);
  }
}

}  // namespace

int64_t checked_add(int64_t a, int64_t b) {
  int64_t result = 0;
  check(!__builtin_add_overflow(a, b, &result), "size {} + {} overflows", a, b);
  return result;
}

int64_t checked_mul(int64_t a, int64_t b) {
  int64_t result = 0;
  check(!__builtin_mul_overflow(a, b, &result), "size {} * {} overflows", a, b);
  return result;
}

int64_t floor_quotient(int64_t a, int64_t b) {
  check(b != 0, "division of size {} by zero", a);
  check(!(b == -1 && a == INT64_MIN), "size {} // {} overflows", a, b);
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

int64_t floor_remainder(int64_t a, int64_t b) {
  check(b != 0, "division of size {} by zero", a);
  if (b == -1) return 0;  // the processor divides, and traps where the quotient overflows
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

int64_t element_count(const Sizes& sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) count = checked_mul(count, size);
  return count;
}

bool is_addressable(const Sizes& sizes, size_t element_bytes) {
  constexpr int64_t kMostBytes = int64_t{1} << 56;
  auto bytes = static_cast<int64_t>(element_bytes);
  for (const int64_t size : sizes)
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes) || bytes > kMostBytes)
      return false;
  return true;
}

Dim::Dim(int64_t value) {
  if (value != 0) terms_[{}] = value;
}

Dim from_atom(const Atom* atom) {
  Dim dim;
  dim.terms_[{atom}] = 1;
  return dim;
}

Dim Dim::symbol(std::string_view name) {
  check(!name.empty(), "a size symbol needs a name");
  return from_atom(make_atom(Atom::Kind::symbol, std::string(name), {}, {}));
}

std::optional<int64_t> Dim::value() const {
  if (terms_.empty()) return 0;
  if (terms_.size() == 1 && terms_.begin()->first.empty()) return terms_.begin()->second;
  return std::nullopt;
}

std::optional<std::string> Dim::symbol_name() const {
  if (terms_.size() != 1 || terms_.begin()->second != 1) return std::nullopt;
  const Product& product = terms_.begin()->first;
  if (product.size() != 1 || product[0]->kind != Atom::Kind::symbol) return std::nullopt;
  return product[0]->name;
}

int64_t Dim::evaluate(const Symbols& symbols) const {
  int64_t sum = 0;
  for (const auto& [atoms, coefficient] : terms_) {
    int64_t value = coefficient;
    for (const Atom* atom : atoms) value = checked_mul(value, evaluate_atom(*atom, symbols));
    sum = checked_add(sum, value);
  }
  return sum;
}

size_t Dim::parts() const {
  size_t sum = 0;
  for (const auto& [atoms, coefficient] : terms_)
    for (const Atom* atom : atoms) sum += atom->parts;
  return sum;
}

void Dim::collect_symbols(std::set<std::string>& names) const {
  for (const auto& [atoms, coefficient] : terms_)
    for (const Atom* atom : atoms) {
      if (atom->kind == Atom::Kind::symbol) {
        names.insert(atom->name);
      } else {
        atom->a.collect_symbols(names);
        atom->b.collect_symbols(names);
      }
    }
}

std::string Dim::text() const {
  if (terms_.empty()) return "0";
  std::vector<std::pair<std::string, int64_t>> parts;  // sorted by text: the canonical order
  for (const auto& [atoms, coefficient] : terms_) {
    std::string text;
    for (const Atom* atom : atoms) text += (text.empty() ? "" : "*") + atom_text(*atom);
    parts.emplace_back(text, coefficient);
  }
  std::sort(parts.begin(), parts.end(), [](const auto& x, const auto& y) {
    return x.first.empty() != y.first.empty() ? y.first.empty() : x.first < y.first;
  });
  std::string result;
  for (const auto& [text, coefficient] : parts) {
    const bool negative = coefficient < 0;
    if (!result.empty())
      result += negative ? " - " : " + ";
    else if (negative)
      result += "-";
    const std::string size = std::to_string(coefficient).substr(negative ? 1 : 0);
    if (text.empty())
      result += size;
    else
      result += (size == "1" ? "" : size + "*") + text;
  }
  return result;
}

Dim operator+(const Dim& a, const Dim& b) {
  Dim result = a;
  for (const auto& [atoms, coefficient] : b.terms_) {
    int64_t& slot = result.terms_[atoms];
    slot = checked_add(slot, coefficient);
    if (slot == 0) result.terms_.erase(atoms);
  }
  check(result.terms_.size() <= kMaxTerms, "a size expression has {} terms, at most {}",
        result.terms_.size(), kMaxTerms);
  return result;
}

Dim operator-(const Dim& a, const Dim& b) {
  return a + b * Dim(-1);
}

Dim operator*(const Dim& a, const Dim& b) {
  const size_t terms = a.terms_.size() * b.terms_.size();
  check(terms <= kMaxTerms, "a size expression has {} terms, at most {}", terms, kMaxTerms);
  Dim result;
  for (const auto& [left, x] : a.terms_)
    for (const auto& [right, y] : b.terms_) {
      Dim::Product atoms = left;
      atoms.insert(atoms.end(), right.begin(), right.end());
      check(atoms.size() <= kMaxFactors, "a size is a product of {} factors, at most {}",
            atoms.size(), kMaxFactors);
      std::sort(atoms.begin(), atoms.end(), atom_less);
      int64_t& slot = result.terms_[atoms];
      slot = checked_add(slot, checked_mul(x, y));
      if (slot == 0) result.terms_.erase(atoms);
    }
  return result;
}

// Division by a single term is enough for sizes: s0*12*64 / 64, (2*s0*s1) / s1.
std::optional<Dim> divide_exactly(const Dim& a, const Dim& b) {
  if (b.terms_.size() != 1) {
    if (a == b && !b.terms_.empty()) return Dim(1);
    return std::nullopt;
  }
  const auto& [divisor, scale] = *b.terms_.begin();
  Dim result;
  for (const auto& [atoms, coefficient] : a.terms_) {
    if (floor_remainder(coefficient, scale) != 0) return std::nullopt;
    if (scale == -1 && coefficient == INT64_MIN) return std::nullopt;  // its quotient overflows
    Dim::Product rest = atoms;
    for (const Atom* atom : divisor) {
      const auto found = std::find(rest.begin(), rest.end(), atom);
      if (found == rest.end()) return std::nullopt;
      rest.erase(found);
    }
    result.terms_[rest] = coefficient / scale;
  }
  return result;
}

namespace {

// Of numbers as windows and strides have them: (p // m + r) // n is (p + m r) // (m n), and of a
// sum what n divides is taken out, so that (a - 2) // 2 + 1 is a // 2. nullopt: neither holds.
std::optional<Dim> folded_quotient(const Dim& a, int64_t n) {
  constexpr int64_t kMost = 1 << 30;  // far from what overflows
  const auto small = [](int64_t number) { return number > -kMost && number < kMost; };
  const auto found = a.terms().find({});
  const int64_t r = found == a.terms().end() ? 0 : found->second;
  if (n <= 0 || !small(n) || !small(r)) return std::nullopt;
  const Dim rest = a - r;
  if (rest.terms().size() == 1) {
    const auto& [atoms, coefficient] = *rest.terms().begin();
    const bool quotient =
        coefficient == 1 && atoms.size() == 1 && atoms[0]->kind == Atom::Kind::floor_div;
    const int64_t m = quotient ? atoms[0]->b.value().value_or(0) : 0;
    if (m > 0 && small(m)) return floor_div(atoms[0]->a + Dim(r) * m, m * n);
  }
  const int64_t whole = -floor_quotient(-r, n);  // what is left is above -n and not above 0
  if (whole == 0) return std::nullopt;
  return floor_div(rest + (r - whole * n), n) + whole;
}

}  // namespace

Dim floor_div(const Dim& a, const Dim& b) {
  const auto x = a.value(), y = b.value();
  if (x && y) return floor_quotient(*x, *y);
  if (b.is(1)) return a;
  if (const auto exact = divide_exactly(a, b)) return *exact;
  if (y)
    if (const auto folded = folded_quotient(a, *y)) return *folded;
  return from_atom(make_atom(Atom::Kind::floor_div, "", a, b));
}

Dim mod(const Dim& a, const Dim& b) {
  const auto x = a.value(), y = b.value();
  if (x && y) return floor_remainder(*x, *y);
  if (divide_exactly(a, b)) return 0;
  return from_atom(make_atom(Atom::Kind::mod, "", a, b));
}

Dim min(const Dim& a, const Dim& b) {
  if (lower_bound(b - a).value_or(-1) >= 0) return a;
  if (lower_bound(a - b).value_or(-1) >= 0) return b;
  const bool swap = b.text() < a.text();
  return from_atom(make_atom(Atom::Kind::min, "", swap ? b : a, swap ? a : b));
}

Dim max(const Dim& a, const Dim& b) {
  if (lower_bound(a - b).value_or(-1) >= 0) return a;
  if (lower_bound(b - a).value_or(-1) >= 0) return b;
  const bool swap = b.text() < a.text();
  return from_atom(make_atom(Atom::Kind::max, "", swap ? b : a, swap ? a : b));
}

namespace {

// The one atom that a size is; null: it is more, or a number.
const Atom* only_atom(const Dim& dim) {
  const auto& terms = dim.terms();
  const bool alone = terms.size() == 1 && terms.begin()->second == 1;
  return alone && terms.begin()->first.size() == 1 ? terms.begin()->first[0] : nullptr;
}

// The sizes that a broadcast joins.
void collect_joined(const Dim& dim, std::vector<Dim>& parts) {
  const Atom* atom = only_atom(dim);
  if (!atom || atom->kind != Atom::Kind::broadcast) {
    if (std::find(parts.begin(), parts.end(), dim) == parts.end()) parts.push_back(dim);
    return;
  }
  collect_joined(atom->a, parts);
  collect_joined(atom->b, parts);
}

// Whether their size is `other` wherever the two broadcast: n and k n do where they are equal or n
// is 1, and n and the lesser of n and a number where they are equal.
bool gives_way(const Dim& part, const Dim& other) {
  if (part == other) return false;
  if (divide_exactly(other, part)) return true;
  const Atom* atom = only_atom(part);
  if (!atom || atom->kind != Atom::Kind::min) return false;
  return (atom->a == other && lower_bound(atom->b).value_or(0) > 0) ||
         (atom->b == other && lower_bound(atom->a).value_or(0) > 0);
}

std::vector<Dim> without_lesser(const std::vector<Dim>& parts) {
  std::vector<Dim> left;
  for (const Dim& part : parts)
    if (std::none_of(parts.begin(), parts.end(),
                     [&](const Dim& other) { return gives_way(part, other); }))
      left.push_back(part);
  return left;
}

}  // namespace

bool is_joined(const Dim& part, const Dim& whole) {
  std::vector<Dim> parts;
  collect_joined(whole, parts);
  const size_t own = parts.size();
  collect_joined(part, parts);
  return parts.size() == own;
}

Dim broadcast_size(const Dim& a, const Dim& b) {
  if (a == b || b.is(1)) return a;
  if (a.is(1)) return b;
  // Whoever is not 1 has the size: a number says it.
  if (a.value() || b.value()) return a.value() ? a : b;
  std::vector<Dim> parts;
  collect_joined(a, parts);
  const size_t own = parts.size();
  collect_joined(b, parts);
  if (parts.size() == own) return a;
  parts = without_lesser(parts);
  std::sort(parts.begin(), parts.end(),
            [](const Dim& x, const Dim& y) { return x.text() < y.text(); });
  Dim result = parts[0];
  for (size_t i = 1; i < parts.size(); ++i)
    result = from_atom(make_atom(Atom::Kind::broadcast, "", result, parts[i]));
  return result;
}

Sizes numbers_of(const Dims& dims, const Symbols& symbols) {
  Sizes numbers;
  numbers.reserve(dims.size());
  for (const Dim& dim : dims) numbers.push_back(dim.evaluate(symbols));
  return numbers;
}

Sizes sizes_of(const Dims& dims, const Symbols& symbols) {
  Sizes sizes = numbers_of(dims, symbols);
  for (size_t i = 0; i < sizes.size(); ++i)
    check(sizes[i] >= 0, "size {} is {} for these inputs", dims[i], sizes[i]);
  return sizes;
}

Dim product(const Dims& dims) {
  Dim result = 1;
  for (const Dim& dim : dims) result = result * dim;
  return result;
}

std::ostream& operator<<(std::ostream& out, const Dim& dim) {
  return out << dim.text();
}

}  // namespace ort
