// A tile program as text, one instruction a line: what ORTMODULE_DEBUG=4 prints.
#include <iterator>

#include "csrc/core/format.h"
#include "providers/cpu/tile.h"

namespace ort::cpu {
namespace {

// In the order of TileOp.
constexpr const char* kOpNames[] = {
    "copy",    "neg",        "abs",         "exp",        "log",         "log1p",      "expm1",
    "log2",    "sqrt",       "reciprocal",  "erf",        "tanh",        "sigmoid",    "relu",
    "gelu",    "gelu_tanh",  "silu",        "sin",        "cos",         "floor",      "ceil",
    "round",   "sign",       "is_nan",      "is_inf",     "logical_not", "square",     "add",
    "sub",     "mul",        "div",         "max",        "min",         "pow",        "equal",
    "less",    "less_equal", "logical_and", "logical_or", "logical_xor", "where",      "mul_add",
    "row_sum", "row_max",    "row_min",     "row_dot",    "column_sum",  "column_dot", "dropout",
    "load",    "store",
};
static_assert(std::size(kOpNames) == static_cast<size_t>(TileOp::store) + 1);

// r0, in1:row, out0, or a constant's number; what varies over every cell has no suffix.
std::string text(const TileProgram& program, int slot) {
  constexpr const char* kKinds[] = {"r", "in", "out"};
  constexpr const char* kSpaces[] = {":one", ":row", ":column", ""};
  const TileSlot& s = program.slots[static_cast<size_t>(slot)];
  if (s.kind == TileSlot::Kind::constant)
    return format("{}", program.constants[static_cast<size_t>(s.index)]);
  return format("{}{}{}", kKinds[static_cast<size_t>(s.kind)], s.index,
                kSpaces[static_cast<size_t>(s.space)]);
}

}  // namespace

std::string text(const TileProgram& program) {
  std::string lines =
      format("  {} rows of {}, {} registers", program.rows, program.cols, program.registers);
  for (const TileInstruction& i : program.code) {
    lines += format("\n  {} = {}", text(program, i.dst), kOpNames[static_cast<size_t>(i.op)]);
    const char* comma = " ";
    for (const int operand : {i.a, i.b, i.c}) {
      if (operand < 0) continue;
      lines += comma + text(program, operand);
      comma = ", ";
    }
    if (i.p != 1.0f) lines += format(" p={}", i.p);
  }
  return lines;
}

}  // namespace ort::cpu
