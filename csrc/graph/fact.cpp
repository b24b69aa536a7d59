// Facts about sizes: deciding them for every size, for given sizes, and saying what is wrong.
#include "csrc/core/format.h"
#include "csrc/graph/graph.h"

namespace ort {

Fact equal_sizes(const Dim& a, const Dim& b) {
  return {Fact::Relation::equal, a, b, ""};
}
Fact differ(const Dim& a, const Dim& b) {
  return {Fact::Relation::differ, a, b, ""};
}
Fact at_least(const Dim& a, const Dim& b) {
  return {Fact::Relation::at_least, a, b, ""};
}
Fact divisible(const Dim& a, const Dim& by) {
  return {Fact::Relation::divisible, a, by, ""};
}
Fact broadcasts(const Dim& a, const Dim& b) {
  return {Fact::Relation::broadcasts, a, b, ""};
}
Fact stretches(const Dim& a, const Dim& to) {
  return {Fact::Relation::stretches, a, to, ""};
}

std::optional<bool> Fact::known() const {
  const auto x = a.value(), y = b.value();
  if (x && y) return holds(*x, *y);
  const auto yes_or_open = [](bool yes) { return yes ? std::optional(true) : std::nullopt; };
  switch (relation) {
    case Relation::equal:
      return yes_or_open(a == b);
    case Relation::differ:
      return yes_or_open(lower_bound(a - b).value_or(0) > 0 || lower_bound(b - a).value_or(0) > 0);
    case Relation::at_least:
      return yes_or_open(lower_bound(a - b).value_or(-1) >= 0);
    case Relation::divisible:
      return yes_or_open(divide_exactly(a, b).has_value() && lower_bound(b).value_or(0) > 0);
    case Relation::stretches:  // a joined size is one that its parts stretch to
      return yes_or_open(a.is(1) || a == b || is_joined(a, b));
    case Relation::broadcasts:
      break;
  }
  if (a.is(1) || b.is(1) || a == b) return true;
  return yes_or_open(is_joined(a, b) || is_joined(b, a));
}

bool Fact::holds(int64_t a_size, int64_t b_size) const {
  switch (relation) {
    case Relation::equal:
      return a_size == b_size;
    case Relation::differ:
      return a_size != b_size;
    case Relation::at_least:
      return a_size >= b_size;
    case Relation::divisible:
      return b_size != 0 && floor_remainder(a_size, b_size) == 0;
    case Relation::stretches:
      return a_size == b_size || a_size == 1;
    case Relation::broadcasts:
      break;
  }
  return a_size == b_size || a_size == 1 || b_size == 1;
}

std::string Fact::failure(int64_t a_size, int64_t b_size) const {
  const auto named = [](const Dim& dim, int64_t size) {
    return dim.value() ? format("{}", size) : format("{} ({})", size, dim);
  };
  const std::string x = named(a, a_size), y = named(b, b_size);
  switch (relation) {
    case Relation::equal:
      return format("{} {} and {} differ", what, x, y);
    case Relation::differ:
      return format("{} {} and {} are equal", what, x, y);
    case Relation::at_least:
      return format("{} {} is less than {}", what, x, y);
    case Relation::divisible:
      return format("{} {} is no multiple of {}", what, x, y);
    case Relation::stretches:
      return format("{} {} does not broadcast to {}", what, x, y);
    case Relation::broadcasts:
      break;
  }
  return format("{} {} and {} do not broadcast", what, x, y);
}

}  // namespace ort
