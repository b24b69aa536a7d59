// What a tile program asks of its kernel, and the form that its sizes choose.
#include "providers/cuda/tile/form.h"

#include <algorithm>

namespace ort::cuda {

using tile::Instruction;
using tile::Number;
using tile::Op;
using tile::over_cols;
using tile::Port;
using tile::Role;
using tile::Slot;
using tile::Space;
using tile::TileProgram;

namespace {

constexpr int64_t kRegisters = 64;  // of a thread, for cells; 512 threads have 128 each in all

// As many as 16 bytes have of the widest operand that is loaded by lanes; 0: an output has cells of
// another kind.
int lanes_of(const TileProgram& program) {
  size_t widest = 2;
  for (const Port& port : program.inputs)
    if (in_packs(port)) widest = std::max(widest, size_of(port.dtype));
  const std::set<size_t> sums = outputs_of_sums(program);
  for (size_t o = 0; o < program.outputs.size(); ++o) {
    const Port& port = program.outputs[o];
    if (in_packs(port)) widest = std::max(widest, size_of(port.dtype));
    if (port.space == Space::row && !sums.count(o)) return 0;
  }
  return static_cast<int>(16 / widest);
}

// Registers of a thread for what it keeps of each cell.
int64_t registers_of(const TileProgram& program) {
  const auto sums = std::count_if(program.code.begin(), program.code.end(),
                                  [](const Instruction& i) { return tile::sums_columns(i.op); });
  const auto kept = static_cast<int64_t>(arrays_of(program).size()) + sums;
  return kept * (size_of(program.element) > 4 ? 2 : 1);
}

int cells_for(int64_t cols, int threads) {
  int cells = 1;
  while (int64_t{cells} * threads < cols) cells *= 2;
  return cells;
}

}  // namespace

bool is_late(const Number& number) {
  return number.over_cols || number.times_cols;
}

bool divides_integers(const TileProgram& program, const Instruction& i) {
  return is_integer(program.element) && (i.op == Op::div || i.op == Op::mod || i.op == Op::fmod);
}

const char* type_name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "float";
    case DType::f64:
      return "double";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::boolean:
      return "bool";
    case DType::i8:
      return "i8";
    case DType::i16:
      return "i16";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
    case DType::u8:
      return "u8";
    case DType::u16:
      return "u16";
    case DType::u32:
      return "u32";
    case DType::u64:
      return "u64";
    default:
      fail("cuda: no text has numbers of {}", dtype);
  }
}

const char* word_type(size_t bytes) {
  switch (bytes) {
    case 1:
      return "u8";
    case 2:
      return "u16";
    case 4:
      return "u32";
    case 8:
      return "u64";
    case 16:
      return "b128";
    default:
      fail("cuda: elements of {} bytes cannot be moved", bytes);
  }
}

std::vector<Number> late_numbers(const TileProgram& program) {
  std::vector<Number> late;
  const auto add = [&](const Number& number) {
    const auto is_it = [&](const Number& x) { return same(x, number); };
    if (is_late(number) && std::none_of(late.begin(), late.end(), is_it)) late.push_back(number);
  };
  for (const Number& number : program.constants) add(number);
  for (const Instruction& i : program.code) add(i.p);
  return late;
}

std::vector<uint32_t> counters_of(const TileProgram& program) {
  std::vector<uint32_t> counters;
  for (const Instruction& i : program.code)
    if (i.op == Op::dropout) counters.push_back(i.counter);
  return counters;
}

bool sums_columns(const TileProgram& program) {
  return std::any_of(program.code.begin(), program.code.end(),
                     [](const Instruction& i) { return tile::sums_columns(i.op); });
}

std::vector<int> levels_of(const TileProgram& program) {
  std::vector<int> levels(program.slots.size(), 0);
  for (const Instruction& i : program.code) {
    int level = 0;
    for (const int slot : {i.a, i.b, i.c})
      if (slot >= 0) level = std::max(level, levels[slot]);
    levels[i.dst] = level + (tile::reduces_row(i.op) ? 1 : 0);
  }
  return levels;
}

std::set<int> arrays_of(const TileProgram& program) {
  const std::vector<int> levels = levels_of(program);
  std::set<int> arrays;
  for (const Instruction& i : program.code)
    for (const int slot : {i.a, i.b, i.c}) {
      if (slot < 0 || !over_cols(program.slots[slot].space)) continue;
      const Slot::Kind kind = program.slots[slot].kind;
      if (kind == Slot::Kind::input || kind == Slot::Kind::constant) continue;
      const int pass = tile::reduces_row(i.op) ? levels[i.dst] - 1 : levels[i.dst];
      if (pass > levels[slot]) arrays.insert(slot);
    }
  return arrays;
}

std::set<size_t> outputs_of_sums(const TileProgram& program) {
  std::set<size_t> outputs;
  for (const Instruction& i : program.code)
    if (tile::sums_columns(i.op)) outputs.insert(static_cast<size_t>(program.slots[i.dst].index));
  return outputs;
}

bool in_packs(const Port& port) {
  return port.role == Role::data && over_cols(port.space);
}

bool is_rowless(const TileProgram& program) {
  const auto whole = [](const Port& port) {
    return !port.strided && (port.space == Space::full || port.space == Space::scalar);
  };
  return std::all_of(program.inputs.begin(), program.inputs.end(), whole) &&
         std::all_of(program.outputs.begin(), program.outputs.end(), whole);
}

bool may_fail(const TileProgram& program) {
  return std::any_of(program.code.begin(), program.code.end(),
                     [&](const Instruction& i) { return divides_integers(program, i); });
}

TileForm form_of(const TileProgram& program, const tile::Extent& extent) {
  TileForm form;
  const auto too_many = int64_t{1} << 31;
  int64_t most = extent.rows * std::max<int64_t>(extent.cols, 1);
  for (const tile::Rows& rows : extent.inputs) {
    form.axes = std::max({form.axes, rows.sizes.size(), size_t{1}});
    int64_t reach = extent.cols;
    for (size_t i = 0; i < rows.sizes.size(); ++i) reach += (rows.sizes[i] - 1) * rows.strides[i];
    most = std::max(most, reach);
  }
  // Grids step beyond the last element: they may not wrap around.
  form.index = most + (int64_t{1} << 23) < too_many ? "unsigned" : "u64";
  const bool reduces = std::any_of(program.code.begin(), program.code.end(),
                                   [](const Instruction& i) { return tile::reduces_row(i.op); });
  if (!reduces && !sums_columns(program)) {
    const auto whole = [](const Port& port) { return port.space == Space::full; };
    if (std::all_of(program.outputs.begin(), program.outputs.end(), whole))
      form.lanes = lanes_of(program);
    return form;
  }
  form.kind = TileForm::rows;
  const int64_t cols = extent.cols;
  const int lanes = lanes_of(program);
  // In shorter rows some threads would have no pack, and no load were saved.
  if (lanes > 0 && cols % lanes == 0 && cols >= int64_t{32} * lanes) form.lanes = lanes;
  const int64_t packs = cols / (form.lanes > 0 ? form.lanes : 4);
  form.row_threads = packs <= 64 ? 32 : packs <= 256 ? 128 : packs <= 512 ? 256 : 512;
  form.rows_at_once = form.row_threads == 32 ? 4 : 1;
  const int cells = std::max(cells_for(cols, form.row_threads), form.lanes);
  form.cells = cells <= 16 && cells * registers_of(program) <= kRegisters ? cells : 0;
  return form;
}

}  // namespace ort::cuda
