// Values to instructions, products fused into sums, registers by liveness.
#include <algorithm>

#include "providers/tile/builder.h"

namespace ort::tile {
Builder::Id Builder::new_value(Slot slot) {
  slots_.push_back(slot);
  return static_cast<Id>(slots_.size()) - 1;
}

Builder::Id Builder::input(Port port) {
  const bool as_it_is = port.role == Role::key || (port.dtype == program_.element && !port.strided);
  program_.inputs.push_back(port);
  const int index = static_cast<int>(program_.inputs.size()) - 1;
  const Id memory = new_value({Slot::Kind::input, index, port.space});
  return as_it_is ? memory : emit(Op::load, memory);
}

Builder::Id Builder::constant(Number number) {
  for (Id id = 0; id < static_cast<Id>(slots_.size()); ++id) {
    const Slot& slot = slots_[id];
    if (slot.kind == Slot::Kind::constant && same(program_.constants[slot.index], number))
      return id;
  }
  program_.constants.push_back(number);
  const int index = static_cast<int>(program_.constants.size()) - 1;
  return new_value({Slot::Kind::constant, index, Space::scalar});
}

Builder::Id Builder::emit(Op op, Id a, Id b, Id c, Number p, uint32_t counter) {
  if (reduces_row(op) || sums_columns(op)) return emit_reduction(op, a, b, p);
  if (op == Op::dropout) a = widen(a, Space::full);
  Space result = space(a);
  if (b >= 0 && op != Op::dropout) result = result | space(b);
  if (c >= 0) result = result | space(c);
  const Id dst = new_value({Slot::Kind::reg, -1, result});
  program_.code.push_back(
      {.op = op, .dst = dst, .a = a, .b = b, .c = c, .p = p, .counter = counter});
  return dst;
}

Builder::Id Builder::emit_reduction(Op op, Id a, Id b, Number p) {
  Space from = space(a);
  if (b >= 0) from = from | space(b);
  Space to = Space::row;
  if (reduces_row(op)) {
    if (!over_cols(from)) {  // equal cells: no loop
      if (op != Op::row_sum) return emit(Op::copy, a);
      p.times_cols = true;
      return emit(Op::mul, a, constant(p));
    }
    program_.whole_rows = true;
    to = over_rows(from) ? Space::column : Space::scalar;
  }
  const Id dst = new_value({Slot::Kind::reg, -1, to});
  program_.code.push_back({.op = op, .dst = dst, .a = a, .b = b, .p = p});
  return dst;
}

Builder::Id Builder::widen(Id value, Space to) {
  if (space(value) == to) return value;
  const Id dst = new_value({Slot::Kind::reg, -1, to});
  program_.code.push_back({.op = Op::copy, .dst = dst, .a = value});
  return dst;
}

void Builder::output(Id value, Port port) {
  const int index = static_cast<int>(program_.outputs.size());
  const bool same = slots_[value].kind == Slot::Kind::reg && space(value) == port.space;
  if (!same) {
    const Id wide = new_value({Slot::Kind::reg, -1, port.space});
    program_.code.push_back({.op = Op::copy, .dst = wide, .a = value});
    value = wide;
  }
  const Slot slot{Slot::Kind::output, index, port.space};
  if (port.dtype == program_.element || is_column_sum(value)) {
    slots_[value] = slot;
  } else {
    const Id memory = new_value(slot);
    program_.code.push_back({.op = Op::store, .dst = memory, .a = value});
  }
  program_.outputs.push_back(port);
}

// A sum of columns is complete when all tiles have run, and converted then.
bool Builder::is_column_sum(Id value) const {
  return std::any_of(program_.code.begin(), program_.code.end(), [&](const Instruction& i) {
    return i.dst == value && tile::sums_columns(i.op);
  });
}

std::vector<int> Builder::uses() const {
  std::vector<int> count(slots_.size(), 0);
  for (const Instruction& i : program_.code)
    for (const Id id : {i.a, i.b, i.c})
      if (id >= 0) ++count[id];
  return count;
}

// sum(a * b) and a * b + c without writing the product.
void Builder::fuse_products() {
  const std::vector<int> used = uses();
  std::vector<int> maker(slots_.size(), -1);
  std::vector<bool> gone(program_.code.size(), false);
  const auto product_of = [&](Id id) {
    if (id < 0 || maker[id] < 0 || used[id] != 1) return -1;
    const Op op = program_.code[maker[id]].op;
    const bool product = op == Op::mul || op == Op::square;
    return product && slots_[id].kind == Slot::Kind::reg ? maker[id] : -1;
  };
  // Of two products both are rounded: where they cancel nothing is left, as in torch.
  const auto is_product = [&](Id id) {
    const Op op = id < 0 || maker[id] < 0 ? Op::copy : program_.code[maker[id]].op;
    return op == Op::mul || op == Op::square;
  };
  for (size_t n = 0; n < program_.code.size(); ++n) {
    Instruction& i = program_.code[n];
    maker[i.dst] = static_cast<int>(n);
    if (i.op == Op::add && is_product(i.a) && is_product(i.b)) continue;
    if (i.op == Op::add && product_of(i.a) < 0) std::swap(i.a, i.b);
    int from = -1;
    if (i.op == Op::row_sum || i.op == Op::column_sum || i.op == Op::add) from = product_of(i.a);
    if (from >= 0 && (i.op != Op::add || space(i.a) == space(i.dst))) {
      const Instruction& product = program_.code[from];
      if (i.op == Op::add) i.c = i.b;
      i.a = product.a;
      i.b = product.op == Op::square ? product.a : product.b;
      i.op = i.op == Op::add ? Op::mul_add : i.op == Op::row_sum ? Op::row_dot : Op::column_dot;
      gone[from] = true;
    }
  }
  std::vector<Instruction> kept;
  for (size_t n = 0; n < gone.size(); ++n)
    if (!gone[n]) kept.push_back(program_.code[n]);
  program_.code = std::move(kept);
}

// A load goes to just before what first reads it: fewer registers are in use at once.
void Builder::sink_loads() {
  std::vector<int> load_of(slots_.size(), -1);
  std::vector<Instruction> code;
  const auto place = [&](Id id) {
    if (id < 0 || load_of[id] < 0) return;
    code.push_back(program_.code[load_of[id]]);
    load_of[id] = -1;
  };
  for (size_t n = 0; n < program_.code.size(); ++n) {
    const Instruction& i = program_.code[n];
    if (i.op == Op::load) {
      load_of[i.dst] = static_cast<int>(n);
      continue;
    }
    for (const Id id : {i.a, i.b, i.c}) place(id);
    code.push_back(i);
  }
  for (Id id = 0; id < static_cast<Id>(load_of.size()); ++id) place(id);  // read by none
  program_.code = std::move(code);
}

// A value's register is free again after its last use; an operand of the same space that ends here
// lends its register to the result.
void Builder::give_registers() {
  std::vector<int> last(slots_.size(), -1);
  for (size_t n = 0; n < program_.code.size(); ++n)
    for (const Id id : {program_.code[n].a, program_.code[n].b, program_.code[n].c})
      if (id >= 0) last[id] = static_cast<int>(n);
  std::vector<int> free;
  for (size_t n = 0; n < program_.code.size(); ++n) {
    const Instruction& i = program_.code[n];
    Slot& dst = slots_[i.dst];
    std::vector<int> after;
    Id operands[3] = {i.a, i.b, i.c};
    for (int k = 0; k < 3; ++k) {
      const Id id = operands[k];
      if (id < 0 || slots_[id].kind != Slot::Kind::reg || last[id] != static_cast<int>(n)) continue;
      if (std::find(operands, operands + k, id) != operands + k) continue;
      (slots_[id].space == dst.space && !reduces_row(i.op) ? free : after)
          .push_back(slots_[id].index);
    }
    if (dst.kind == Slot::Kind::reg) {
      if (free.empty()) free.push_back(program_.registers++);
      dst.index = free.back();
      free.pop_back();
      if (last[i.dst] < 0) after.push_back(dst.index);
    }
    free.insert(free.end(), after.begin(), after.end());
  }
}

void Builder::find_variants() {
  program_.last_read.assign(program_.inputs.size(), -1);
  program_.first_write.assign(program_.outputs.size(), 0);
  for (size_t n = 0; n < program_.code.size(); ++n) {
    Instruction& i = program_.code[n];
    const Space to = slots_[i.dst].space;
    i.by_row = reduces_row(i.op) ? to == Space::column : sums_columns(i.op);
    for (const Id id : {i.a, i.b, i.c}) {
      if (id < 0) continue;
      if (slots_[id].kind == Slot::Kind::input)
        program_.last_read[slots_[id].index] = static_cast<int>(n);
      const Space from = slots_[id].space;
      if (to == Space::full && from != Space::full && from != Space::scalar) i.by_row = true;
    }
    if (i.op == Op::dropout) i.by_row = false;
    i.variant = variant_of(i);
    if (slots_[i.dst].kind == Slot::Kind::output)
      program_.first_write[slots_[i.dst].index] = static_cast<int>(n);
  }
}

int Builder::variant_of(const Instruction& i) const {
  const Id operands[3] = {i.a, i.b, i.c};
  Space over = slots_[i.dst].space;  // a sum of one row is one cell, its operands are not
  for (const Id id : operands)
    if (id >= 0) over = over | slots_[id].space;
  int variant = 0;
  for (int k = 0; k < 3; ++k) {
    if (operands[k] < 0) continue;
    const Space from = slots_[operands[k]].space;
    const bool one = i.by_row ? !over_cols(from) : from == Space::scalar && over != Space::scalar;
    variant |= one << k;
  }
  return variant;
}

TileProgram Builder::finish() {
  fuse_products();
  sink_loads();
  give_registers();
  find_variants();
  program_.slots = std::move(slots_);
  return std::move(program_);
}

}  // namespace ort::tile
