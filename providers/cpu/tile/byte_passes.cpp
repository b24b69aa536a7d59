// Reads a program backwards from each store and each product, as long as a value is read by the
// next instruction alone.
#include "providers/cpu/tile/byte_passes.h"

#include <algorithm>

namespace ort::cpu {
namespace {

using tile::Instruction;
using tile::Op;
using tile::Slot;
using tile::Space;
using tile::TileProgram;

bool is_one(const TileProgram& program, int slot) {
  return slot >= 0 && program.slots[static_cast<size_t>(slot)].space == Space::scalar;
}

class Chain {
 public:
  // From the instruction before number `next` on, whose result is `from`.
  Chain(const TileProgram& program, size_t next, int from)
      : program_(program), next_(next), from_(from) {}

  // The instruction before, where it makes what is read and its other operand is one number.
  // Numbers may be loaded between them.
  bool take(Op op, int* number) {
    const Instruction* i = before(op);
    if (!i || i->by_row) return false;
    const bool swaps = number && op != Op::div && op != Op::sub && is_one(program_, i->a);
    const int value = swaps ? i->b : i->a, other = swaps ? i->a : i->b;
    if (is_one(program_, value) || (number && !is_one(program_, other))) return false;
    if (number) *number = other;
    go_to(value);
    return true;
  }
  // The instruction before, where it loads what is read from elements of a byte.
  bool take_load() {
    const Instruction* i = before(Op::load);
    if (!i || is_one(program_, i->a)) return false;
    const tile::Port& port = program_.inputs[static_cast<size_t>(slot_at(i->a).index)];
    if (port.strided || (port.dtype != DType::u8 && port.dtype != DType::i8)) return false;
    go_to(i->a);
    return true;
  }
  // What was read before a load is read after it now: it may not lie in the same register.
  bool keeps(std::initializer_list<int> read) const {
    const auto lost = [&](int slot, int load) {
      if (slot < 0 || slot == load) return false;
      const Slot &a = slot_at(slot), &b = slot_at(load);
      return a.kind == Slot::Kind::reg && a.index == b.index;
    };
    return std::none_of(loaded_.begin(), loaded_.end(), [&](int load) {
      return std::any_of(read.begin(), read.end(), [&](int slot) { return lost(slot, load); });
    });
  }
  int from() const { return from_; }
  const std::vector<size_t>& joined() const { return joined_; }

 private:
  const Slot& slot_at(int slot) const { return program_.slots[static_cast<size_t>(slot)]; }
  // By an instruction and by nobody else: what is an output too is written where it is made.
  bool is_read_once(int slot) const {
    if (slot_at(slot).kind != Slot::Kind::reg) return false;
    int reads = 0;
    for (const Instruction& i : program_.code)
      reads += (i.a == slot) + (i.b == slot) + (i.c == slot);
    return reads == 1;
  }
  bool loads_one(const Instruction& i) const { return i.op == Op::load && is_one(program_, i.dst); }
  const Instruction* before(Op op) {
    while (next_ > 0 && loads_one(program_.code[next_ - 1]))
      loaded_.push_back(program_.code[--next_].dst);
    if (next_ == 0) return nullptr;
    const Instruction& i = program_.code[next_ - 1];
    return i.op == op && i.dst == from_ && is_read_once(i.dst) ? &i : nullptr;
  }
  void go_to(int value) {
    from_ = value;
    joined_.insert(joined_.begin(), --next_);
  }

  const TileProgram& program_;
  size_t next_;
  int from_;
  std::vector<size_t> joined_;
  std::vector<int> loaded_;
};

bool stores_bytes(const TileProgram& program, const Instruction& i) {
  if (i.op != Op::store) return false;
  const auto output = static_cast<size_t>(program.slots[static_cast<size_t>(i.dst)].index);
  const DType dtype = program.outputs[output].dtype;
  return dtype == DType::u8 || dtype == DType::i8;
}

bool find(Chain& chain, ByteStore& found) {
  if (!chain.take(Op::min, &found.high) || !chain.take(Op::max, &found.low)) return false;
  chain.take(Op::add, &found.zero);
  if (!chain.take(Op::round, nullptr)) return false;
  chain.take(Op::div, &found.divisor);
  found.from = chain.from();
  found.joined = chain.joined();
  return chain.keeps({found.from, found.divisor, found.zero, found.low, found.high});
}

bool find(Chain& chain, ByteLoad& found) {
  chain.take(Op::sub, &found.zero);
  if (!chain.take_load()) return false;
  found.from = chain.from();
  found.joined = chain.joined();
  return chain.keeps({found.zero});
}

}  // namespace

std::map<size_t, ByteStore> byte_stores(const TileProgram& program) {
  std::map<size_t, ByteStore> all;
  if (program.element != DType::f32) return all;
  for (size_t at = 0; at < program.code.size(); ++at) {
    if (!stores_bytes(program, program.code[at])) continue;
    Chain chain(program, at, program.code[at].a);
    if (ByteStore found; find(chain, found)) all.emplace(at, std::move(found));
  }
  return all;
}

std::map<size_t, ByteLoad> byte_loads(const TileProgram& program) {
  std::map<size_t, ByteLoad> all;
  if (program.element != DType::f32) return all;
  for (size_t at = 0; at < program.code.size(); ++at) {
    const Instruction& i = program.code[at];
    if (i.op != Op::mul || i.by_row) continue;
    ByteLoad found;
    const bool swaps = is_one(program, i.a);
    found.scale = swaps ? i.a : i.b;
    if (!is_one(program, found.scale)) continue;
    Chain chain(program, at, swaps ? i.b : i.a);
    if (find(chain, found)) all.emplace(at, std::move(found));
  }
  return all;
}

}  // namespace ort::cpu
