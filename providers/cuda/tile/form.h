// In which of two forms a tile program is a kernel: a thread for each element, or threads for each
// row, whose values stay in registers or are made again for each pass.
#pragma once

#include <set>

#include "providers/tile/program.h"

namespace ort::cuda {

struct TileForm {
  enum Kind { flat, rows } kind = flat;
  int row_threads = 32;  // that share a row
  int rows_at_once = 1;  // of a block
  int cells = 1;         // of a row for each thread, in registers; 0: each pass reads again
  const char* index = "unsigned";
  size_t axes = 0;  // of the rows of strided inputs
  int lanes = 0;    // elements of a row that a thread may load at once; 0: one alone
  int threads() const { return kind == flat ? 256 : row_threads * rows_at_once; }
};

bool sums_columns(const tile::TileProgram& program);
// Whether it divides integers: by zero it sets a mark.
bool divides_integers(const tile::TileProgram& program, const tile::Instruction& instruction);
bool may_fail(const tile::TileProgram& program);
TileForm form_of(const tile::TileProgram& program, const tile::Extent& extent);

// The numbers that depend on the columns, as arguments of the kernels, in their order.
bool is_late(const tile::Number& number);
std::vector<tile::Number> late_numbers(const tile::TileProgram& program);

// Those of dropouts, as arguments too: layers that differ in nothing else share a text.
std::vector<uint32_t> counters_of(const tile::TileProgram& program);

// Of each slot, how many reductions of rows stand before it.
std::vector<int> levels_of(const tile::TileProgram& program);
// Slots with a value for each cell that is read at a later level than its own.
std::set<int> arrays_of(const tile::TileProgram& program);
// Outputs whose cells are sums over rows.
std::set<size_t> outputs_of_sums(const tile::TileProgram& program);
// Whether an operand's elements or cells of a row are loaded and stored by lanes; sums are not.
bool in_packs(const tile::Port& port);
// Whether no operand asks for a row or a column.
bool is_rowless(const tile::TileProgram& program);

const char* type_name(DType dtype);   // in a text: "float", "i64", "bf16"
const char* word_type(size_t bytes);  // an element that is only moved: "u8" to "b128"

}  // namespace ort::cuda
