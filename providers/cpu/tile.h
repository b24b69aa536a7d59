// Tile programs: element-wise and row-wise work over a [rows, cols] space as a short list of vector
// instructions, run over tiles that stay in the first cache (vectorised interpretation, as in
// MonetDB/X100). tile_build.cpp makes them from regions; tests make them directly.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "providers/kernel.h"

namespace ort::cpu {

enum class TileOp : uint8_t {
  // One operand.
  copy,
  neg,
  abs,
  exp,
  log,
  log1p,
  expm1,
  log2,
  sqrt,
  reciprocal,
  erf,
  tanh,
  sigmoid,
  relu,
  gelu,
  gelu_tanh,
  silu,
  sin,
  cos,
  floor,
  ceil,
  round,
  sign,
  is_nan,
  is_inf,
  logical_not,
  square,
  // Two.
  add,
  sub,
  mul,
  div,
  max,
  min,
  pow,
  equal,
  less,
  less_equal,
  logical_and,
  logical_or,
  logical_xor,
  // Three: c ? a : b as (condition, a, b); a * b + c.
  where,
  mul_add,
  // A row's cells into one; `p` scales sums. row_dot sums a * b.
  row_sum,
  row_max,
  row_min,
  row_dot,
  // Every row added into one; column_dot adds a * b. Always outputs.
  column_sum,
  column_dot,
  // x, key (an input); p is the ratio, `counter` the node's number.
  dropout,
  // From and to memory of other element types.
  load,
  store,
};

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

// What an instruction's function sees. Operands marked broadcast in its variant are one element.
struct TileArgs {
  float* dst;
  const float *a, *b, *c;
  int64_t count;
  float p;
  uint64_t key;
  uint32_t counter;
  uint64_t index;  // flat index of the first element
};
using TileFunction = void (*)(const TileArgs&);

// Variant: bit i set when operand i is one element for the whole run.
TileFunction tile_function(TileOp op, int variant);

// Memory that a program reads or writes.
struct TilePort {
  Space space = Space::full;
  DType dtype = DType::f32;
  // For an input whose rows are not one dense stride apart: the sizes of the row axes and the
  // operand's strides over them, in elements.
  Sizes row_sizes, row_strides;
};

struct TileSlot {
  enum class Kind : uint8_t { reg, input, output, constant };
  Kind kind = Kind::reg;
  int index = 0;
  Space space = Space::full;
};

struct TileInstruction {
  TileOp op;
  int dst = -1, a = -1, b = -1, c = -1;  // slots
  float p = 1.0f;
  uint32_t counter = 0;
  TileFunction run = nullptr;
  bool by_row = false;  // operands differ in how they vary over rows, or it reduces rows
};

struct TileProgram {
  int64_t rows = 1, cols = 1;
  std::vector<TilePort> inputs, outputs;
  std::vector<float> constants;
  std::vector<TileSlot> slots;
  std::vector<TileInstruction> code;
  int registers = 0;
  bool whole_rows = false;  // a tile must hold whole rows
  bool column_sums = false;
  std::vector<int> last_read, first_write;  // by input and by output: instruction numbers
};

// Writes a program value by value, then gives registers to the values.
class TileBuilder {
 public:
  using Id = int;  // of a value
  TileBuilder(int64_t rows, int64_t cols);
  Id input(TilePort port);  // converted to float32 where it is of another type
  Id key_input();           // a uint64 that dropout reads
  Id constant(double value);
  Id emit(TileOp op, Id a, Id b = -1, Id c = -1, float p = 1.0f, uint32_t counter = 0);
  void output(Id value, TilePort port);
  Space space(Id value) const { return slots_[value].space; }
  int64_t cols() const { return program_.cols; }
  TileProgram finish();

 private:
  Id new_value(TileSlot slot);
  Id emit_reduction(TileOp op, Id a, Id b, float p);
  Id widen(Id value, Space space);
  void fuse_products();
  std::vector<int> uses() const;
  void give_registers();
  void pick_functions();

  TileProgram program_;
  std::vector<TileSlot> slots_;  // a value's slot; registers are given by finish
};

// The program as lines of text, for ORTMODULE_DEBUG=4.
std::string text(const TileProgram& program);

std::unique_ptr<Kernel> make_tile_kernel(TileProgram program, std::string name);

}  // namespace ort::cpu
