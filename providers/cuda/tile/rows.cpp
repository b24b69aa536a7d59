// A pass over a row runs the instructions of one level.
#include <algorithm>

#include "providers/cuda/tile/statements.h"

namespace ort::cuda {
namespace {

using tile::Instruction;
using tile::Op;
using tile::over_cols;
using tile::over_rows;
using tile::Port;
using tile::Slot;
using tile::Space;
using tile::TileProgram;

class Rows {
 public:
  explicit Rows(Statements& out)
      : out_(out),
        p_(out.program()),
        form_(out.form()),
        type_(out.type()),
        levels_(levels_of(p_)),
        last_(*std::max_element(levels_.begin(), levels_.end())) {}

  void run() {
    if (form_.cells > 0) out_.arrays = arrays_of(p_);
    out_.line(format("const index lane = thread() % {}, own = thread() / {};", form_.row_threads,
                     form_.row_threads));
    out_.line(format("const u64 bands = (u64)blocks() * {}, band = (u64)block() * {} + own;",
                     form_.rows_at_once, form_.rows_at_once));
    begin_sums();
    out_.line(
        format("for (index own_rows = block() * {}; own_rows < rows; own_rows += (index)bands) {",
               form_.rows_at_once));
    out_.line("const index row = own_rows + own;");
    out_.find_places();
    for (const int slot : out_.arrays) out_.line(format("{} v{}[{}];", type_, slot, form_.cells));
    for (int level = 0; level <= last_; ++level) {
      out_.leaves = form_.cells > 0 || level == last_;
      row_values(level);
      pass(level);
    }
    out_.line("}");
    end_sums();
  }

 private:
  bool in_loop(const Instruction& i) const {
    return over_cols(p_.slots[i.dst].space) && !tile::sums_columns(i.op);
  }

  // The instructions of a pass over the cells of a row: of its level, or whatever it needs.
  std::set<const Instruction*> needed(int level) const {
    std::set<const Instruction*> result;
    std::set<int> slots;
    const auto want = [&](const Instruction& i) {
      for (const int slot : {i.a, i.b, i.c})
        if (slot >= 0) slots.insert(slot);
    };
    for (const Instruction& i : p_.code) {
      const bool reduces = tile::reduces_row(i.op) && levels_[i.dst] - 1 == level;
      const bool leaves =
          level == last_ &&
          (tile::sums_columns(i.op) || (in_loop(i) && p_.slots[i.dst].kind == Slot::Kind::output));
      if (reduces || leaves) want(i);
      if (leaves && in_loop(i)) result.insert(&i);
    }
    for (auto i = p_.code.rbegin(); i != p_.code.rend(); ++i)
      if (in_loop(*i) && slots.count(i->dst)) {
        result.insert(&*i);
        want(*i);
      }
    return result;
  }

  bool runs_in(const Instruction& i, int level, const std::set<const Instruction*>& again) const {
    if (tile::sums_columns(i.op)) return form_.cells > 0 ? levels_[i.dst] == level : level == last_;
    if (tile::reduces_row(i.op)) return levels_[i.dst] - 1 == level;
    return form_.cells > 0 ? levels_[i.dst] == level : again.count(&i) > 0;
  }

  // Over the cells that a thread has of a row, one after another or a pack at a time.
  void begin_cells(const std::vector<const Instruction*>& code) {
    if (out_.packed) return begin_packs(code);
    if (form_.cells > 0) {
      out_.line("#pragma unroll");
      out_.line(format("for (int k = 0; k < {}; ++k) {", form_.cells));
      out_.line(
          format("const index col = lane + {} * k; if (col >= cols) continue;", form_.row_threads));
    } else {
      out_.line(format("for (index col = lane; col < cols; col += {}) {", form_.row_threads));
    }
    out_.line("const index at = row * cols + col; (void)at;");
  }
  void begin_packs(const std::vector<const Instruction*>& code) {
    const int lanes = form_.lanes, step = form_.row_threads * lanes;
    if (form_.cells > 0) {
      out_.line("#pragma unroll");
      out_.line(format("for (int pack = 0; pack < {}; ++pack) {", form_.cells / lanes));
      out_.line(format("const index left = lane * {} + {} * pack; if (left >= cols) continue;",
                       lanes, step));
    } else {
      out_.line(format("for (index left = lane * {}; left < cols; left += {}) {", lanes, step));
    }
    out_.line("const index first = row * cols + left; (void)first;");
    out_.load_packs(loaded(code));
    out_.begin_packs(stored(code));
    out_.line("#pragma unroll");
    out_.line(format("for (int j = 0; j < {}; ++j) {", lanes));
    if (form_.cells > 0) out_.line(format("const int k = pack * {} + j; (void)k;", lanes));
    out_.line("const index col = left + j, at = first + j; (void)col; (void)at;");
  }
  void end_cells(const std::vector<const Instruction*>& code) {
    if (out_.packed) {
      out_.line("}");
      out_.store_packs(stored(code));
    }
    out_.line("}");
  }
  std::set<size_t> loaded(const std::vector<const Instruction*>& code) const {
    std::set<size_t> inputs;
    for (const Instruction* i : code)
      for (const int slot : {i->a, i->b, i->c})
        if (slot >= 0 && p_.slots[slot].kind == Slot::Kind::input &&
            in_packs(p_.inputs[p_.slots[slot].index]))
          inputs.insert(static_cast<size_t>(p_.slots[slot].index));
    return inputs;
  }
  std::set<size_t> stored(const std::vector<const Instruction*>& code) const {
    std::set<size_t> outputs;
    for (const Instruction* i : code)
      if (in_loop(*i) && p_.slots[i->dst].kind == Slot::Kind::output &&
          (out_.leaves || i->op == Op::store))
        outputs.insert(static_cast<size_t>(p_.slots[i->dst].index));
    return outputs;
  }

  std::string folded(const Instruction& i) const {
    const char* how = i.op == Op::row_max ? "row_max" : i.op == Op::row_min ? "row_min" : "row_sum";
    return format("{}<{}>(v{})", how, form_.row_threads, i.dst);
  }

  void add_cell(const Instruction& i) {
    const std::string a = out_.operand(i.a), b = i.b >= 0 ? out_.operand(i.b) : "";
    const std::string to = tile::sums_columns(i.op)
                               ? form_.cells > 0 ? format("v{}[k]", i.dst) : std::string("total")
                               : format("v{}", i.dst);
    if (tile::sums_columns(i.op) && form_.cells == 0)
      out_.line(format(
          "{ {}* const sum = a.sums + ({} * bands + band) * cols + col; {} total = load_at(sum);",
          type_, out_.sum_of(i.dst), type_));
    if (i.op == Op::row_max || i.op == Op::row_min)
      out_.line(format("{} = op::{}<{}>({}, {});", to, i.op == Op::row_max ? "max" : "min", type_,
                       to, a));
    else if (i.b >= 0)
      out_.line(format("{} = op::mul_add<{}>({}, {}, {});", to, type_, a, b, to));
    else
      out_.line(format("{} += {};", to, a));
    if (tile::sums_columns(i.op) && form_.cells == 0) out_.line("store_at(sum, total); }");
  }

  void pass(int level) {
    std::vector<const Instruction*> code, reductions;
    const auto again = form_.cells > 0 ? std::set<const Instruction*>() : needed(level);
    for (const Instruction& i : p_.code) {
      const bool cell = in_loop(i) || tile::sums_columns(i.op) || tile::reduces_row(i.op);
      if (!cell || !runs_in(i, level, again)) continue;
      code.push_back(&i);
      if (tile::reduces_row(i.op)) reductions.push_back(&i);
    }
    if (code.empty()) return;
    for (const Instruction* i : reductions)
      out_.line(i->op == Op::row_max   ? format("{} v{} = lowest<{}>();", type_, i->dst, type_)
                : i->op == Op::row_min ? format("{} v{} = -lowest<{}>();", type_, i->dst, type_)
                                       : format("{} v{} = 0;", type_, i->dst));
    out_.line(form_.rows_at_once > 1 ? "if (row < rows) {" : "{");
    begin_cells(code);
    for (const Instruction* i : code)
      tile::reduces_row(i->op) || tile::sums_columns(i->op) ? add_cell(*i) : out_.element(*i);
    end_cells(code);
    out_.line("}");
    for (const Instruction* i : reductions) {
      const bool scaled = i->op == Op::row_sum || i->op == Op::row_dot;
      const bool one = !is_late(i->p) && i->p.value == 1.0;
      out_.line(format("v{} = {}{};", i->dst, folded(*i),
                       scaled && !one ? " * " + out_.number(i->p) : ""));
    }
  }

  // What a row has one of: values, then those of them that leave.
  void row_values(int level) {
    for (const Instruction& i : p_.code) {
      if (over_cols(p_.slots[i.dst].space) || levels_[i.dst] != level || tile::sums_columns(i.op))
        continue;
      if (tile::reduces_row(i.op)) {
        leave(i.dst, format("v{}", i.dst));
      } else if (i.op == Op::store) {
        leave(i.dst, out_.operand(i.a));
      } else {
        out_.line(format("const {} v{} = {};", type_, i.dst, row_expression(i)));
        leave(i.dst, format("v{}", i.dst));
      }
    }
  }
  // Threads beyond the last row read none.
  std::string row_expression(const Instruction& i) {
    bool reads = false;
    for (const int slot : {i.a, i.b, i.c})
      reads = reads || (slot >= 0 && p_.slots[slot].kind == Slot::Kind::input &&
                        over_rows(p_.slots[slot].space));
    return reads ? format("row < rows ? {} : {}(0)", out_.expression(i), type_)
                 : out_.expression(i);
  }
  void leave(int slot, const std::string& value) {
    const Slot& s = p_.slots[slot];
    if (s.kind != Slot::Kind::output) return;
    const Port& port = p_.outputs[s.index];
    out_.line(format("if (lane == 0 && row < rows{}) store(a.out{}, {}, as<{}>({}));",
                     port.space == Space::column ? "" : " && row == 0", s.index,
                     out_.place(port, 0), type_name(port.dtype), value));
  }

  // Each thread has the sums of its own cells, in registers or in its band of the memory for them.
  void begin_sums() {
    for (const Instruction& i : p_.code) {
      if (!tile::sums_columns(i.op)) continue;
      if (form_.cells > 0) {
        out_.line(format("{} v{}[{}] = {};", type_, i.dst, form_.cells, "{}"));
        continue;
      }
      const int lanes = out_.packed ? form_.lanes : 1;
      out_.line(format("for (index left = lane * {}; left < cols; left += {})", lanes,
                       form_.row_threads * lanes));
      out_.line(format("for (int j = 0; j < {}; ++j)", lanes));
      out_.line(format("store(a.sums + ({} * bands + band) * cols, left + j, {}(0));",
                       out_.sum_of(i.dst), type_));
    }
  }
  void end_sums() {
    if (form_.cells == 0) return;
    const int lanes = out_.packed ? form_.lanes : 1;
    for (const Instruction& i : p_.code) {
      if (!tile::sums_columns(i.op)) continue;
      out_.line("#pragma unroll");
      out_.line(format("for (int k = 0; k < {}; ++k) {", form_.cells));
      out_.line(format("const index col = (lane + {} * (k / {})) * {} + k % {};", form_.row_threads,
                       lanes, lanes, lanes));
      out_.line(format("if (col < cols) store(a.sums + ({} * bands + band) * cols, col, v{}[k]); }",
                       out_.sum_of(i.dst), i.dst));
    }
  }

  Statements& out_;
  const TileProgram& p_;
  const TileForm& form_;
  const char* type_;
  const std::vector<int> levels_;  // of slots
  const int last_;
};

}  // namespace

void write_rows(Statements& out) {
  Rows(out).run();
}

}  // namespace ort::cuda
