// A tile program as text, one instruction a line: what ORTMODULE_DEBUG=4 prints; and what the
// instructions' names say.
#include <bit>
#include <iterator>

#include "csrc/core/format.h"
#include "providers/tile/program.h"

namespace ort::tile {
namespace {

#define ORT_NAME(NAME) #NAME,
constexpr const char* kNames[] = {ORT_TILE_OPS(ORT_NAME)};
#undef ORT_NAME

// As its value at a number of columns: 0.5, 1/cols.
std::string text(const Number& number) {
  return format("{}{}{}", number.value, number.over_cols ? "/cols" : "",
                number.times_cols ? "*cols" : "");
}

// r0, in1:row, out0, or a constant's number; what varies over every cell has no suffix.
std::string text(const TileProgram& program, int slot) {
  constexpr const char* kKinds[] = {"r", "in", "out"};
  constexpr const char* kSpaces[] = {":one", ":row", ":column", ""};
  const Slot& s = program.slots[static_cast<size_t>(slot)];
  if (s.kind == Slot::Kind::constant) return text(program.constants[static_cast<size_t>(s.index)]);
  return format("{}{}{}", kKinds[static_cast<size_t>(s.kind)], s.index,
                kSpaces[static_cast<size_t>(s.space)]);
}

}  // namespace

std::string_view name_of(Op op) {
  return kNames[static_cast<size_t>(op)];
}

bool reduces_row(Op op) {
  return op >= Op::row_sum && op <= Op::row_dot;
}

bool sums_columns(Op op) {
  return op == Op::column_sum || op == Op::column_dot;
}

bool same(const Number& a, const Number& b) {
  return std::bit_cast<uint64_t>(a.value) == std::bit_cast<uint64_t>(b.value) &&
         a.over_cols == b.over_cols && a.times_cols == b.times_cols;
}

std::string text(const TileProgram& program) {
  std::string lines = format("  {}, {} registers", program.element, program.registers);
  for (const Instruction& i : program.code) {
    lines += format("\n  {} = {}", text(program, i.dst), name_of(i.op));
    const char* comma = " ";
    for (const int operand : {i.a, i.b, i.c}) {
      if (operand < 0) continue;
      lines += comma + text(program, operand);
      comma = ", ";
    }
    if (!same(i.p, Number{})) lines += format(" p={}", text(i.p));
  }
  return lines;
}

}  // namespace ort::tile
