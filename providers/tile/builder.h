// Writes a tile program value by value, then gives registers to the values. lower.cpp uses it;
// tests make programs with it directly.
#pragma once

#include "providers/tile/program.h"

namespace ort::tile {

class Builder {
 public:
  using Id = int;  // of a value
  explicit Builder(DType element = DType::f32) { program_.element = element; }
  Id input(Port port);  // converted to the element type where it is of another
  Id constant(Number number);
  Id constant(double value) { return constant(Number{value}); }
  Id emit(Op op, Id a, Id b = -1, Id c = -1, Number p = {}, uint32_t counter = 0);
  void output(Id value, Port port);
  Space space(Id value) const { return slots_[value].space; }
  TileProgram finish();

 private:
  Id new_value(Slot slot);
  Id emit_reduction(Op op, Id a, Id b, Number p);
  Id widen(Id value, Space space);
  bool is_column_sum(Id value) const;
  void fuse_products();
  void sink_loads();
  std::vector<int> uses() const;
  void give_registers();
  void find_variants();
  int variant_of(const Instruction& i) const;

  TileProgram program_;
  std::vector<Slot> slots_;  // a value's slot; registers are given by finish
};

}  // namespace ort::tile
