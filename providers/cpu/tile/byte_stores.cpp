// Reads a program backwards from each store, as long as a value is read by the next alone.
#include "providers/cpu/tile/byte_stores.h"

#include <algorithm>

namespace ort::cpu {
namespace {

using tile::Instruction;
using tile::Op;
using tile::Slot;
using tile::Space;
using tile::TileProgram;

class Chain {
 public:
  Chain(const TileProgram& program, size_t store) : program_(program), next_(store) {
    found_.from = program.code[store].a;
  }

  // Whether the store ends a chain that may be done at once.
  bool find() {
    if (!take(Op::min, &found_.high) || !take(Op::max, &found_.low)) return false;
    take(Op::add, &found_.zero);
    if (!take(Op::round, nullptr)) return false;
    take(Op::div, &found_.divisor);
    return keeps_registers();
  }
  ByteStore found() && { return std::move(found_); }

 private:
  bool is_one(int slot) const {
    return slot >= 0 && program_.slots[static_cast<size_t>(slot)].space == Space::scalar;
  }
  // By an instruction and by nobody else: what is an output too is written where it is made.
  bool is_read_once(int slot) const {
    if (program_.slots[static_cast<size_t>(slot)].kind != Slot::Kind::reg) return false;
    int reads = 0;
    for (const Instruction& i : program_.code)
      reads += (i.a == slot) + (i.b == slot) + (i.c == slot);
    return reads == 1;
  }

  // The instruction before, where it makes what is read and its other operand is one number.
  // Numbers may be loaded between them.
  bool take(Op op, int* number) {
    while (next_ > 0 && loads_one(program_.code[next_ - 1]))
      loaded_.push_back(program_.code[--next_].dst);
    if (next_ == 0) return false;
    const Instruction& i = program_.code[next_ - 1];
    if (i.op != op || i.dst != found_.from || i.by_row || !is_read_once(i.dst)) return false;
    const bool swaps = number && op != Op::div && is_one(i.a);
    const int value = swaps ? i.b : i.a, other = swaps ? i.a : i.b;
    if (is_one(value) || (number && !is_one(other))) return false;
    if (number) *number = other;
    found_.from = value;
    found_.joined.insert(found_.joined.begin(), --next_);
    return true;
  }
  bool loads_one(const Instruction& i) const { return i.op == Op::load && is_one(i.dst); }

  // What was read before a load is read after it now: it may not lie in the same register.
  bool keeps_registers() const {
    const auto& slots = program_.slots;
    const auto in_register_of = [&](int slot, int other) {
      if (slot < 0 || slot == other) return false;
      const Slot &a = slots[static_cast<size_t>(slot)], &b = slots[static_cast<size_t>(other)];
      return a.kind == Slot::Kind::reg && a.index == b.index;
    };
    return std::none_of(loaded_.begin(), loaded_.end(), [&](int load) {
      return in_register_of(found_.from, load) || in_register_of(found_.divisor, load) ||
             in_register_of(found_.zero, load) || in_register_of(found_.low, load) ||
             in_register_of(found_.high, load);
    });
  }

  const TileProgram& program_;
  size_t next_;
  ByteStore found_;
  std::vector<int> loaded_;
};

}  // namespace

std::map<size_t, ByteStore> byte_stores(const TileProgram& program) {
  std::map<size_t, ByteStore> found;
  for (size_t at = 0; at < program.code.size(); ++at) {
    const Instruction& i = program.code[at];
    if (i.op != Op::store || program.element != DType::f32) continue;
    const auto output = static_cast<size_t>(program.slots[static_cast<size_t>(i.dst)].index);
    const DType dtype = program.outputs[output].dtype;
    if (dtype != DType::u8 && dtype != DType::i8) continue;
    Chain chain(program, at);
    if (chain.find()) found.emplace(at, std::move(chain).found());
  }
  return found;
}

}  // namespace ort::cpu
