// Operands and instructions as expressions over the prelude of the texts.
#include "providers/cuda/tile/statements.h"

#include <algorithm>
#include <cinttypes>

namespace ort::cuda {

using tile::Instruction;
using tile::Number;
using tile::Op;
using tile::over_cols;
using tile::Port;
using tile::Role;
using tile::Slot;
using tile::Space;

namespace {

std::string literal(double value, DType element) {
  if (element == DType::boolean) return value != 0 ? "true" : "false";
  if (is_integer(element))
    return format("({})({}ll)", type_name(element), static_cast<int64_t>(value));
  if (std::isnan(value)) return format("({})bits_to_float(0x7fc00000u)", type_name(element));
  if (std::isinf(value))
    return format("({})bits_to_float({})", type_name(element),
                  value > 0 ? "0x7f800000u" : "0xff800000u");
  char text[64];
  std::snprintf(text, sizeof text, "(%s)%a", type_name(element), value);
  return text;
}

}  // namespace

std::string Statements::number(const Number& n) const {
  if (!is_late(n)) return literal(n.value, p_.element);
  const std::vector<Number> late = late_numbers(p_);
  const auto at =
      std::find_if(late.begin(), late.end(), [&](const Number& x) { return same(x, n); });
  return format("({})a.late[{}]", type_, at - late.begin());
}

std::string Statements::place(const Port& port, size_t input) const {
  if (port.strided) return format("{}place{}", over_cols(port.space) ? "col + " : "", input);
  switch (port.space) {
    case Space::full:
      return "at";
    case Space::row:
      return "col";
    case Space::column:
      return "row";
    default:
      return "0";
  }
}

std::string Statements::name(int slot) const {
  const bool array = arrays.count(slot) > 0;
  return format("v{}{}", slot, array ? "[k]" : "");
}

std::string Statements::operand(int slot) const {
  const Slot& s = p_.slots[slot];
  if (s.kind == Slot::Kind::constant) return number(p_.constants[s.index]);
  if (s.kind != Slot::Kind::input) return name(slot);
  const Port& port = p_.inputs[s.index];
  if (port.role == Role::key) return format("load(a.in{}, 0)", s.index);
  if (packed && in_packs(port)) return format("as<{}>(p{}.x[j])", type_, s.index);
  return format("as<{}>(load(a.in{}, {}))", type_, s.index,
                place(port, static_cast<size_t>(s.index)));
}

std::string Statements::expression(const Instruction& i) const {
  if (i.op == Op::load) return operand(i.a);
  if (i.op == Op::dropout)
    return format("op::dropout<{}>({}, {}, {}, (u32)a.counters[{}], (u64)at)", type_, operand(i.a),
                  number(i.p), operand(i.b), dropouts_before(i.dst));
  std::string text = format("op::{}<{}>(", tile::name_of(i.op), type_);
  const char* comma = "";
  for (const int slot : {i.a, i.b, i.c})
    if (slot >= 0) {
      text += comma + operand(slot);
      comma = ", ";
    }
  return text + ")";
}

void Statements::store(int slot, const std::string& value) {
  const Slot& s = p_.slots[slot];
  if (s.kind != Slot::Kind::output) return;
  const Port& port = p_.outputs[s.index];
  if (packed) return line(format("q{}.x[j] = as<{}>({});", s.index, type_name(port.dtype), value));
  const std::string put = format("store(a.out{}, {}, as<{}>({}));", s.index, place(port, 0),
                                 type_name(port.dtype), value);
  const bool every = port.space == Space::full || !loops_over_cells;
  const std::string when = port.space == Space::column ? "col == 0"
                           : port.space == Space::row  ? "row == 0"
                                                       : "at == 0";
  line(every ? put : format("if ({}) {}", when, put));
}

void Statements::element(const Instruction& i) {
  if (divides_integers(p_, i))
    line(format("if ({} == 0) fail_with(a.failure, a.mark);", operand(i.b)));
  if (i.op == Op::store) return store(i.dst, operand(i.a));
  const bool array = arrays.count(i.dst) > 0;
  line(format("{}{} = {};", array ? "" : std::string(type_) + " ", name(i.dst), expression(i)));
  if (leaves) store(i.dst, name(i.dst));
}

void Statements::load_packs(const std::set<size_t>& inputs) {
  for (const size_t i : inputs) {
    const Port& port = p_.inputs[i];
    const std::string from = port.strided                ? format("place{} + left", i)
                             : port.space == Space::full ? "first"
                                                         : "left";
    line(format("const auto p{} = load_pack<{}>(a.in{}, {});", i, form_.lanes, i, from));
  }
}

void Statements::begin_packs(const std::set<size_t>& outputs) {
  for (const size_t o : outputs)
    line(format("Pack<{}, {}> q{};", type_name(p_.outputs[o].dtype), form_.lanes, o));
}

void Statements::store_packs(const std::set<size_t>& outputs) {
  for (const size_t o : outputs)
    line(format("store_pack<{}>(a.out{}, first, q{});", form_.lanes, o, o));
}

void Statements::find_places() {
  for (size_t i = 0; i < p_.inputs.size(); ++i) {
    if (!p_.inputs[i].strided) continue;
    line(format("index place{} = 0; {", i));
    line("index rest = row;");
    line(format("for (int axis = {}; axis-- > 0;) {", form_.axes));
    line(format("const index size = (index)a.sizes{}[axis];", i));
    line(format("place{} += rest % size * (index)a.strides{}[axis]; rest /= size; } }", i, i));
  }
}

namespace {

template <class Is>
size_t count_before(const tile::TileProgram& program, int slot, Is is) {
  size_t before = 0;
  for (const Instruction& i : program.code) {
    if (i.dst == slot) break;
    before += is(i.op);
  }
  return before;
}

}  // namespace

size_t Statements::sum_of(int slot) const {
  return count_before(p_, slot, tile::sums_columns);
}

size_t Statements::dropouts_before(int slot) const {
  return count_before(p_, slot, [](Op op) { return op == Op::dropout; });
}

}  // namespace ort::cuda
