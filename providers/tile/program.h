// Tile programs: element-wise and row-wise work over a [rows, cols] space as a short list of vector
// instructions. A program holds no sizes: an Extent gives them when it is bound. region.cpp makes
// programs of a graph's nodes; a provider runs them (cpu interprets them over tiles that stay in
// the first cache, as MonetDB/X100 does).
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "csrc/core/dim.h"
#include "csrc/core/dtype.h"
#include "providers/layout.h"

// The instructions, by what they need: scalar.h says what each means. Functions are of floating
// numbers, of one or of two (pow of integers too), truths of bools too, bits of integers.
// clang-format off
#define ORT_TILE_ARITHMETIC_1(X) X(copy) X(neg) X(abs) X(relu) X(sign) X(logical_not) X(square)
#define ORT_TILE_FUNCTIONS(X)                                                         \
  X(exp) X(log) X(log1p) X(expm1) X(log2) X(sqrt) X(reciprocal) X(erf) X(tanh)        \
  X(sigmoid) X(gelu) X(gelu_tanh) X(silu) X(sin) X(cos) X(floor) X(ceil) X(round)     \
  X(gelu_derivative) X(gelu_tanh_derivative) X(silu_derivative)                       \
  X(is_nan) X(is_inf) X(to_bf16) X(to_f16)
#define ORT_TILE_LIBRARY(X)                                                           \
  X(tan) X(asin) X(acos) X(atan) X(sinh) X(cosh) X(asinh) X(acosh) X(atanh)
#define ORT_TILE_FUNCTIONS_2(X) X(pow)
#define ORT_TILE_TRUTHS(X)                                                            \
  X(max) X(min) X(equal) X(less) X(less_equal) X(logical_and) X(logical_or) X(logical_xor)
#define ORT_TILE_ARITHMETIC_2(X) X(add) X(sub) X(mul) X(div) ORT_TILE_TRUTHS(X)
#define ORT_TILE_REMAINDERS(X) X(mod) X(fmod)
#define ORT_TILE_BITS(X) X(bit_and) X(bit_or) X(bit_xor) X(shift_left) X(shift_right)
#define ORT_TILE_ARITHMETIC_3(X) X(where) X(mul_add)
// A row's cells into one; every row added into one (always outputs). The dots sum a * b.
#define ORT_TILE_ROWS(X) X(row_sum) X(row_max) X(row_min) X(row_dot)
#define ORT_TILE_COLUMNS(X) X(column_sum) X(column_dot)
// Random; from and to memory of other element types.
#define ORT_TILE_OTHERS(X) X(dropout) X(load) X(store)
#define ORT_TILE_OPS(X)                                                               \
  ORT_TILE_ARITHMETIC_1(X) ORT_TILE_FUNCTIONS(X) ORT_TILE_LIBRARY(X) X(bit_not)       \
  ORT_TILE_ARITHMETIC_2(X) ORT_TILE_FUNCTIONS_2(X) ORT_TILE_REMAINDERS(X)             \
  ORT_TILE_BITS(X)                                                                    \
  ORT_TILE_ARITHMETIC_3(X) ORT_TILE_ROWS(X) ORT_TILE_COLUMNS(X) ORT_TILE_OTHERS(X)
// clang-format on

namespace ort::tile {

#define ORT_NAME(NAME) NAME,
enum class Op : uint8_t { ORT_TILE_OPS(ORT_NAME) };
#undef ORT_NAME

std::string_view name_of(Op op);
bool reduces_row(Op op);
bool sums_columns(Op op);

// What a value varies over; the space of a result is the union of its operands' spaces.
enum class Space : uint8_t { scalar = 0, row = 1, column = 2, full = 3 };
constexpr Space operator|(Space a, Space b) {
  return static_cast<Space>(static_cast<int>(a) | static_cast<int>(b));
}
constexpr bool over_cols(Space s) {
  return (static_cast<int>(s) & 1) != 0;
}
constexpr bool over_rows(Space s) {
  return (static_cast<int>(s) & 2) != 0;
}

// What an input is read as: numbers, or the key of the random numbers (one uint64).
enum class Role : uint8_t { data, key };

// Memory that a program reads or writes.
struct Port {
  Space space = Space::full;
  DType dtype = DType::f32;
  Role role = Role::data;
  bool strided = false;  // an input whose rows are not one dense stride apart: see Rows
  friend bool operator==(const Port&, const Port&) = default;
};

// A number that is known when the columns are.
struct Number {
  double value = 1.0;
  bool over_cols = false, times_cols = false;
  double at(int64_t cols) const {
    const double over = over_cols ? value / static_cast<double>(cols) : value;
    return times_cols ? over * static_cast<double>(cols) : over;
  }
};
bool same(const Number& a, const Number& b);  // the two zeros are two numbers

struct Slot {
  enum class Kind : uint8_t { reg, input, output, constant };
  Kind kind = Kind::reg;
  int index = 0;
  Space space = Space::full;
};

struct Instruction {
  Op op;
  int dst = -1, a = -1, b = -1, c = -1;  // slots
  Number p = {};                         // the scale of a sum, the ratio of a dropout
  uint32_t counter = 0;                  // of a dropout: the node's number
  bool by_row = false;  // operands differ in how they vary over rows, or it reduces rows
  int variant = 0;      // bit i: operand i is one element for the whole run
};

struct TileProgram {
  DType element = DType::f32;  // of the registers: what it computes in
  std::vector<Port> inputs, outputs;
  std::vector<Number> constants;
  std::vector<Slot> slots;
  std::vector<Instruction> code;
  int registers = 0;
  bool whole_rows = false;                  // a tile must hold whole rows
  std::vector<int> last_read, first_write;  // by input and by output: instruction numbers
};

// The sizes of the row axes, and an operand's strides over them in elements.
struct Rows {
  Sizes sizes, strides;
};

// What a binding adds to a program.
struct Extent {
  int64_t rows = 1, cols = 1;
  std::vector<Rows> inputs;  // by input; empty but for those that are strided
  // How many rows a sum of columns adds, each sum into the next row of its output; a number that
  // counts columns counts these rows then. 0: all rows.
  int64_t group = 0;
};

// How a kernel's operands lie; row-major where nothing is said.
struct OperandLayouts {
  int64_t block = 0;  // of channels, where the program is to know of them
  std::vector<Layout> in{}, out{};
};

// The program as lines of text, for ORTMODULE_DEBUG=4.
std::string text(const TileProgram& program);

}  // namespace ort::tile
