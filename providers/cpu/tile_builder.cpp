// TileBuilder: values to instructions, products fused into sums, registers by liveness.
#include <algorithm>
#include <bit>

#include "csrc/core/error.h"
#include "providers/cpu/tile.h"

namespace ort::cpu {
namespace {

bool reduces_row(TileOp op) {
  return op == TileOp::row_sum || op == TileOp::row_max || op == TileOp::row_min ||
         op == TileOp::row_dot;
}

bool sums_columns(TileOp op) {
  return op == TileOp::column_sum || op == TileOp::column_dot;
}

}  // namespace

TileBuilder::TileBuilder(int64_t rows, int64_t cols) {
  program_.rows = rows;
  program_.cols = cols;
}

TileBuilder::Id TileBuilder::new_value(TileSlot slot) {
  slots_.push_back(slot);
  return static_cast<Id>(slots_.size()) - 1;
}

TileBuilder::Id TileBuilder::input(TilePort port) {
  const bool as_it_is = port.dtype == DType::f32 && port.row_sizes.empty();
  const Space space = port.space;
  program_.inputs.push_back(std::move(port));
  const int index = static_cast<int>(program_.inputs.size()) - 1;
  const Id memory = new_value({TileSlot::Kind::input, index, space});
  return as_it_is ? memory : emit(TileOp::load, memory);
}

TileBuilder::Id TileBuilder::key_input() {
  program_.inputs.push_back({Space::scalar, DType::u64, {}, {}});
  const int index = static_cast<int>(program_.inputs.size()) - 1;
  return new_value({TileSlot::Kind::input, index, Space::scalar});
}

TileBuilder::Id TileBuilder::constant(double value) {
  const float number = static_cast<float>(value);
  const auto same = [](float a, float b) {  // the two zeros are two numbers
    return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
  };
  for (Id id = 0; id < static_cast<Id>(slots_.size()); ++id) {
    const TileSlot& slot = slots_[id];
    if (slot.kind == TileSlot::Kind::constant && same(program_.constants[slot.index], number))
      return id;
  }
  program_.constants.push_back(number);
  const int index = static_cast<int>(program_.constants.size()) - 1;
  return new_value({TileSlot::Kind::constant, index, Space::scalar});
}

TileBuilder::Id TileBuilder::emit(TileOp op, Id a, Id b, Id c, float p, uint32_t counter) {
  if (reduces_row(op) || sums_columns(op)) return emit_reduction(op, a, b, p);
  if (op == TileOp::dropout) a = widen(a, Space::full);
  Space result = space(a);
  if (b >= 0 && op != TileOp::dropout) result = result | space(b);
  if (c >= 0) result = result | space(c);
  const Id dst = new_value({TileSlot::Kind::reg, -1, result});
  program_.code.push_back(
      {.op = op, .dst = dst, .a = a, .b = b, .c = c, .p = p, .counter = counter});
  return dst;
}

TileBuilder::Id TileBuilder::emit_reduction(TileOp op, Id a, Id b, float p) {
  Space from = space(a);
  if (b >= 0) from = from | space(b);
  Space to = Space::row;
  if (reduces_row(op)) {
    if (!over_cols(from)) {  // equal cells: no loop
      if (op != TileOp::row_sum) return emit(TileOp::copy, a);
      return emit(TileOp::mul, a, constant(static_cast<double>(program_.cols) * p));
    }
    program_.whole_rows = true;
    to = over_rows(from) ? Space::column : Space::scalar;
  } else {
    program_.column_sums = true;
  }
  const Id dst = new_value({TileSlot::Kind::reg, -1, to});
  program_.code.push_back({.op = op, .dst = dst, .a = a, .b = b, .p = p});
  return dst;
}

TileBuilder::Id TileBuilder::widen(Id value, Space to) {
  if (space(value) == to) return value;
  const Id dst = new_value({TileSlot::Kind::reg, -1, to});
  program_.code.push_back({.op = TileOp::copy, .dst = dst, .a = value});
  return dst;
}

void TileBuilder::output(Id value, TilePort port) {
  const int index = static_cast<int>(program_.outputs.size());
  const bool same = slots_[value].kind == TileSlot::Kind::reg && space(value) == port.space;
  if (!same) {
    const Id wide = new_value({TileSlot::Kind::reg, -1, port.space});
    program_.code.push_back({.op = TileOp::copy, .dst = wide, .a = value});
    value = wide;
  }
  const TileSlot slot{TileSlot::Kind::output, index, port.space};
  if (port.dtype == DType::f32) {
    slots_[value] = slot;
  } else {
    const Id memory = new_value(slot);
    program_.code.push_back({.op = TileOp::store, .dst = memory, .a = value});
  }
  program_.outputs.push_back(std::move(port));
}

std::vector<int> TileBuilder::uses() const {
  std::vector<int> count(slots_.size(), 0);
  for (const TileInstruction& i : program_.code)
    for (const Id id : {i.a, i.b, i.c})
      if (id >= 0) ++count[id];
  return count;
}

// sum(a * b) and a * b + c without writing the product.
void TileBuilder::fuse_products() {
  const std::vector<int> used = uses();
  std::vector<int> maker(slots_.size(), -1);
  std::vector<bool> gone(program_.code.size(), false);
  const auto product_of = [&](Id id) {
    if (id < 0 || maker[id] < 0 || used[id] != 1) return -1;
    const TileOp op = program_.code[maker[id]].op;
    const bool product = op == TileOp::mul || op == TileOp::square;
    return product && slots_[id].kind == TileSlot::Kind::reg ? maker[id] : -1;
  };
  for (size_t n = 0; n < program_.code.size(); ++n) {
    TileInstruction& i = program_.code[n];
    if (i.op == TileOp::add && product_of(i.a) < 0) std::swap(i.a, i.b);
    int from = -1;
    if (i.op == TileOp::row_sum || i.op == TileOp::column_sum || i.op == TileOp::add)
      from = product_of(i.a);
    if (from >= 0 && (i.op != TileOp::add || space(i.a) == space(i.dst))) {
      const TileInstruction& product = program_.code[from];
      if (i.op == TileOp::add) i.c = i.b;
      i.a = product.a;
      i.b = product.op == TileOp::square ? product.a : product.b;
      i.op = i.op == TileOp::add       ? TileOp::mul_add
             : i.op == TileOp::row_sum ? TileOp::row_dot
                                       : TileOp::column_dot;
      gone[from] = true;
    }
    maker[i.dst] = static_cast<int>(n);
  }
  std::vector<TileInstruction> kept;
  for (size_t n = 0; n < gone.size(); ++n)
    if (!gone[n]) kept.push_back(program_.code[n]);
  program_.code = std::move(kept);
}

// A value's register is free again after its last use; an operand of the same space that ends here
// lends its register to the result.
void TileBuilder::give_registers() {
  std::vector<int> last(slots_.size(), -1);
  for (size_t n = 0; n < program_.code.size(); ++n)
    for (const Id id : {program_.code[n].a, program_.code[n].b, program_.code[n].c})
      if (id >= 0) last[id] = static_cast<int>(n);
  std::vector<int> free;
  for (size_t n = 0; n < program_.code.size(); ++n) {
    const TileInstruction& i = program_.code[n];
    TileSlot& dst = slots_[i.dst];
    std::vector<int> after;
    Id operands[3] = {i.a, i.b, i.c};
    for (int k = 0; k < 3; ++k) {
      const Id id = operands[k];
      if (id < 0 || slots_[id].kind != TileSlot::Kind::reg || last[id] != static_cast<int>(n))
        continue;
      if (std::find(operands, operands + k, id) != operands + k) continue;
      (slots_[id].space == dst.space && !reduces_row(i.op) ? free : after)
          .push_back(slots_[id].index);
    }
    if (dst.kind == TileSlot::Kind::reg) {
      if (free.empty()) free.push_back(program_.registers++);
      dst.index = free.back();
      free.pop_back();
      if (last[i.dst] < 0) after.push_back(dst.index);
    }
    free.insert(free.end(), after.begin(), after.end());
  }
}

void TileBuilder::pick_functions() {
  program_.last_read.assign(program_.inputs.size(), -1);
  program_.first_write.assign(program_.outputs.size(), 0);
  for (size_t n = 0; n < program_.code.size(); ++n) {
    TileInstruction& i = program_.code[n];
    const Space to = slots_[i.dst].space;
    i.by_row = reduces_row(i.op) ? to == Space::column : sums_columns(i.op);
    const Id operands[3] = {i.a, i.b, i.c};
    for (const Id id : operands) {
      if (id < 0) continue;
      if (slots_[id].kind == TileSlot::Kind::input)
        program_.last_read[slots_[id].index] = static_cast<int>(n);
      const Space from = slots_[id].space;
      if (to == Space::full && from != Space::full && from != Space::scalar) i.by_row = true;
    }
    if (i.op == TileOp::dropout) i.by_row = false;
    int variant = 0;
    for (int k = 0; k < 3; ++k) {
      if (operands[k] < 0) continue;
      const Space from = slots_[operands[k]].space;
      const bool one = i.by_row ? !over_cols(from) : from == Space::scalar && to != Space::scalar;
      variant |= one << k;
    }
    if (slots_[i.dst].kind == TileSlot::Kind::output)
      program_.first_write[slots_[i.dst].index] = static_cast<int>(n);
    if (i.op == TileOp::load || i.op == TileOp::store) continue;
    i.run = tile_function(i.op, variant);
    check(i.run != nullptr, "tile programs have no instruction {}", static_cast<int>(i.op));
  }
}

TileProgram TileBuilder::finish() {
  fuse_products();
  give_registers();
  pick_functions();
  program_.slots = std::move(slots_);
  return std::move(program_);
}

}  // namespace ort::cpu
