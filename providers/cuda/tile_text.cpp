// Instructions by their level: how many reductions of rows stand before them. A pass over a row
// runs one level.
#include "providers/cuda/tile_text.h"

#include <algorithm>
#include <cinttypes>
#include <set>

namespace ort::cuda {
namespace {

using tile::Instruction;
using tile::Number;
using tile::Op;
using tile::over_cols;
using tile::over_rows;
using tile::Port;
using tile::Role;
using tile::Slot;
using tile::Space;
using tile::TileProgram;

bool is_late(const Number& number) {
  return number.over_cols || number.times_cols;
}

bool divides_integers(const TileProgram& program, const Instruction& i) {
  return is_integer(program.element) && (i.op == Op::div || i.op == Op::mod || i.op == Op::fmod);
}

std::string literal(double value, DType element) {
  if (element == DType::boolean) return value != 0 ? "true" : "false";
  if (is_integer(element))
    return format("({})({}ll)", type_name(element), static_cast<int64_t>(value));
  if (std::isnan(value)) return format("({})bits_to_float(0x7fc00000u)", type_name(element));
  if (std::isinf(value))
    return format("({})bits_to_float({})", type_name(element),
                  value > 0 ? "0x7f800000u" : "0xff800000u");
  char text[64];
  std::snprintf(text, sizeof text, "(%s)%a", type_name(element), value);
  return text;
}

class Writer {
 public:
  Writer(const TileProgram& program, const TileForm& form)
      : p_(program),
        form_(form),
        type_(type_name(program.element)),
        levels_(program.slots.size(), 0) {
    for (const Instruction& i : p_.code) {
      int level = 0;
      for (const int slot : {i.a, i.b, i.c})
        if (slot >= 0) level = std::max(level, levels_[slot]);
      levels_[i.dst] = level + (tile::reduces_row(i.op) ? 1 : 0);
      last_ = std::max(last_, levels_[i.dst]);
    }
  }

  std::string run() {
    arguments();
    line("ORT_KERNEL(run, Args) {");
    line("const index rows = (index)a.rows, cols = (index)a.cols;");
    form_.kind == TileForm::flat ? flat() : rows();
    line("}");
    if (form_.lanes > 0) packs();
    if (sums_columns(p_)) fold();
    return std::move(text_);
  }

 private:
  void line(const std::string& text) { text_ += text + "\n"; }

  void arguments() {
    line(format("typedef {} index;", form_.index));
    line("struct Args {");
    for (size_t i = 0; i < p_.inputs.size(); ++i)
      line(p_.inputs[i].role == Role::key
               ? format("u64 in{};", i)
               : format("const {}* in{};", type_name(p_.inputs[i].dtype), i));
    for (size_t o = 0; o < p_.outputs.size(); ++o)
      line(format("{}* out{};", type_name(p_.outputs[o].dtype), o));
    line(format("{}* sums; i32* failure; i64 mark, rows, cols;", type_));
    for (size_t i = 0; i < p_.inputs.size(); ++i)
      if (p_.inputs[i].strided)
        line(format("i64 sizes{}[{}], strides{}[{}];", i, form_.axes, i, form_.axes));
    const size_t late = late_numbers(p_).size();
    if (late > 0) line(format("double late[{}];", late));
    line("};");
  }

  // --- operands ---

  // A number of the program or of an instruction.
  std::string number(const Number& n) {
    if (!is_late(n)) return literal(n.value, p_.element);
    const std::vector<Number> late = late_numbers(p_);
    const auto at =
        std::find_if(late.begin(), late.end(), [&](const Number& x) { return same(x, n); });
    return format("({})a.late[{}]", type_, at - late.begin());
  }

  // Where a cell of a port lies, at the row and column at hand.
  std::string place(const Port& port, size_t input) const {
    if (port.strided) return format("{}place{}", over_cols(port.space) ? "col + " : "", input);
    switch (port.space) {
      case Space::full:
        return "at";
      case Space::row:
        return "col";
      case Space::column:
        return "row";
      default:
        return "0";
    }
  }

  std::string name(int slot) const {
    const bool array = arrays_.count(slot) > 0;
    return format("v{}{}", slot, array ? "[k]" : "");
  }

  std::string operand(int slot) {
    const Slot& s = p_.slots[slot];
    if (s.kind == Slot::Kind::constant) return number(p_.constants[s.index]);
    if (s.kind != Slot::Kind::input) return name(slot);
    const Port& port = p_.inputs[s.index];
    if (port.role == Role::key) return format("a.in{}", s.index);
    if (packed_ && in_packs(port)) return format("as<{}>(p{}.x[j])", type_, s.index);
    return format("as<{}>(load(a.in{}, {}))", type_, s.index,
                  place(port, static_cast<size_t>(s.index)));
  }

  std::string expression(const Instruction& i) {
    if (i.op == Op::load) return operand(i.a);
    if (i.op == Op::dropout)
      return format("op::dropout<{}>({}, {}, {}, {}u, (u64)at)", type_, operand(i.a), number(i.p),
                    operand(i.b), i.counter);
    std::string text = format("op::{}<{}>(", tile::name_of(i.op), type_);
    const char* comma = "";
    for (const int slot : {i.a, i.b, i.c})
      if (slot >= 0) {
        text += comma + operand(slot);
        comma = ", ";
      }
    return text + ")";
  }

  // --- statements ---

  void store(int slot, const std::string& value) {
    const Slot& s = p_.slots[slot];
    if (s.kind != Slot::Kind::output) return;
    const Port& port = p_.outputs[s.index];
    if (packed_)
      return line(format("q{}.x[j] = as<{}>({});", s.index, type_name(port.dtype), value));
    const std::string put = format("store(a.out{}, {}, as<{}>({}));", s.index, place(port, 0),
                                   type_name(port.dtype), value);
    const bool every = port.space == Space::full || !loops_over_cells_;
    const std::string when = port.space == Space::column ? "col == 0"
                             : port.space == Space::row  ? "row == 0"
                                                         : "at == 0";
    line(every ? put : format("if ({}) {}", when, put));
  }

  void element(const Instruction& i) {
    if (divides_integers(p_, i))
      line(format("if ({} == 0) fail_with(a.failure, a.mark);", operand(i.b)));
    if (i.op == Op::store) return store(i.dst, operand(i.a));
    const bool array = arrays_.count(i.dst) > 0;
    line(format("{}{} = {};", array ? "" : std::string(type_) + " ", name(i.dst), expression(i)));
    if (form_.kind == TileForm::flat || last_pass_ || form_.cells > 0) store(i.dst, name(i.dst));
  }

  void find_places() {
    for (size_t i = 0; i < p_.inputs.size(); ++i) {
      if (!p_.inputs[i].strided) continue;
      line(format("index place{} = 0; {", i));
      line("index rest = row;");
      line(format("for (int axis = {}; axis-- > 0;) {", form_.axes));
      line(format("const index size = (index)a.sizes{}[axis];", i));
      line(format("place{} += rest % size * (index)a.strides{}[axis]; rest /= size; } }", i, i));
    }
  }

  void flat() {
    loops_over_cells_ = true;
    line("const index count = rows * cols, step = (index)threads() * blocks();");
    line("for (index at = (index)block() * threads() + thread(); at < count; at += step) {");
    if (!is_rowless(p_))
      line("const index row = at / cols, col = at - row * cols; (void)row; (void)col;");
    find_places();
    for (const Instruction& i : p_.code) element(i);
    line("}");
  }

  // As flat, several elements at once.
  void packs() {
    packed_ = true;
    const int lanes = form_.lanes;
    line("ORT_KERNEL(packs, Args) {");
    line(format("const index cols = (index)a.cols, count = (index)a.rows * cols / {};", lanes));
    line("const index step = (index)threads() * blocks(); (void)cols;");
    line("for (index pack = (index)block() * threads() + thread(); pack < count; pack += step) {");
    line(format("const index first = pack * {};", lanes));
    if (!is_rowless(p_))
      line("const index row = first / cols, left = first - row * cols; (void)row;");
    for (size_t i = 0; i < p_.inputs.size(); ++i)
      if (in_packs(p_.inputs[i]))
        line(format("const auto p{} = load_pack<{}>(a.in{}, {});", i, lanes, i,
                    p_.inputs[i].space == Space::full ? "first" : "left"));
    for (size_t o = 0; o < p_.outputs.size(); ++o)
      line(format("Pack<{}, {}> q{};", type_name(p_.outputs[o].dtype), lanes, o));
    line("#pragma unroll");
    line(format("for (int j = 0; j < {}; ++j) {", lanes));
    line("const index at = first + j; (void)at;");
    for (const Instruction& i : p_.code) element(i);
    line("}");
    for (size_t o = 0; o < p_.outputs.size(); ++o)
      line(format("store_pack<{}>(a.out{}, first, q{});", lanes, o, o));
    line("} }");
    packed_ = false;
  }

  // --- rows ---

  bool in_loop(const Instruction& i) const {
    return over_cols(p_.slots[i.dst].space) && !tile::sums_columns(i.op);
  }

  // What has cells of its own and is read in a later pass than that which makes it.
  void choose_arrays() {
    if (form_.cells == 0) return;
    for (const Instruction& i : p_.code)
      for (const int slot : {i.a, i.b, i.c}) {
        if (slot < 0 || !over_cols(p_.slots[slot].space)) continue;
        const Slot::Kind kind = p_.slots[slot].kind;
        if (kind == Slot::Kind::input || kind == Slot::Kind::constant) continue;
        const int pass = tile::reduces_row(i.op) ? levels_[i.dst] - 1 : levels_[i.dst];
        if (pass > levels_[slot]) arrays_.insert(slot);
      }
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

  void begin_cells() {
    if (form_.cells > 0) {
      line("#pragma unroll");
      line(format("for (int k = 0; k < {}; ++k) {", form_.cells));
      line(
          format("const index col = lane + {} * k; if (col >= cols) continue;", form_.row_threads));
    } else {
      line(format("for (index col = lane; col < cols; col += {}) {", form_.row_threads));
    }
    line("const index at = row * cols + col; (void)at;");
  }

  std::string folded(const Instruction& i) const {
    const char* how = i.op == Op::row_max ? "row_max" : i.op == Op::row_min ? "row_min" : "row_sum";
    return format("{}<{}>(v{})", how, form_.row_threads, i.dst);
  }

  void add_cell(const Instruction& i) {
    const std::string a = operand(i.a), b = i.b >= 0 ? operand(i.b) : "";
    const std::string to = tile::sums_columns(i.op)
                               ? form_.cells > 0 ? format("v{}[k]", i.dst) : std::string("total")
                               : format("v{}", i.dst);
    if (tile::sums_columns(i.op) && form_.cells == 0)
      line(format(
          "{ {}* const sum = a.sums + ({} * bands + band) * cols + col; {} total = load_at(sum);",
          type_, sum_of(i.dst), type_));
    if (i.op == Op::row_max || i.op == Op::row_min)
      line(format("{} = op::{}<{}>({}, {});", to, i.op == Op::row_max ? "max" : "min", type_, to,
                  a));
    else if (i.b >= 0)
      line(format("{} = op::mul_add<{}>({}, {}, {});", to, type_, a, b, to));
    else
      line(format("{} += {};", to, a));
    if (tile::sums_columns(i.op) && form_.cells == 0) line("store_at(sum, total); }");
  }

  void pass(int level) {
    std::vector<const Instruction*> reductions;
    bool any = false;
    const auto again = form_.cells > 0 ? std::set<const Instruction*>() : needed(level);
    for (const Instruction& i : p_.code) {
      const bool cell = in_loop(i) || tile::sums_columns(i.op) || tile::reduces_row(i.op);
      if (!cell || !runs_in(i, level, again)) continue;
      any = true;
      if (!tile::reduces_row(i.op)) continue;
      reductions.push_back(&i);
      const char* start = i.op == Op::row_max ? "lowest<" : nullptr;
      line(start                 ? format("{} v{} = lowest<{}>();", type_, i.dst, type_)
           : i.op == Op::row_min ? format("{} v{} = -lowest<{}>();", type_, i.dst, type_)
                                 : format("{} v{} = 0;", type_, i.dst));
    }
    if (!any) return;
    line("if (row < rows) {");
    begin_cells();
    for (const Instruction& i : p_.code) {
      if (!(in_loop(i) || tile::sums_columns(i.op) || tile::reduces_row(i.op))) continue;
      if (!runs_in(i, level, again)) continue;
      tile::reduces_row(i.op) || tile::sums_columns(i.op) ? add_cell(i) : element(i);
    }
    line("} }");
    for (const Instruction* i : reductions) {
      const bool scaled = i->op == Op::row_sum || i->op == Op::row_dot;
      const bool one = !is_late(i->p) && i->p.value == 1.0;
      line(format("v{} = {}{};", i->dst, folded(*i), scaled && !one ? " * " + number(i->p) : ""));
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
        leave(i.dst, operand(i.a));
      } else {
        line(format("const {} v{} = {};", type_, i.dst, row_expression(i)));
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
    return reads ? format("row < rows ? {} : {}(0)", expression(i), type_) : expression(i);
  }
  void leave(int slot, const std::string& value) {
    const Slot& s = p_.slots[slot];
    if (s.kind != Slot::Kind::output) return;
    const Port& port = p_.outputs[s.index];
    line(format("if (lane == 0 && row < rows{}) store(a.out{}, {}, as<{}>({}));",
                port.space == Space::column ? "" : " && row == 0", s.index, place(port, 0),
                type_name(port.dtype), value));
  }

  size_t sum_of(int slot) const {
    size_t before = 0;
    for (const Instruction& i : p_.code) {
      if (i.dst == slot) break;
      before += tile::sums_columns(i.op);
    }
    return before;
  }

  void begin_sums() {
    for (const Instruction& i : p_.code) {
      if (!tile::sums_columns(i.op)) continue;
      if (form_.cells > 0)
        line(format("{} v{}[{}] = {};", type_, i.dst, form_.cells, "{}"));
      else
        line(
            format("for (index col = lane; col < cols; col += {}) store(a.sums + ({} * bands + "
                   "band) * cols, col, {}(0));",
                   form_.row_threads, sum_of(i.dst), type_));
    }
  }
  void end_sums() {
    if (form_.cells == 0) return;
    for (const Instruction& i : p_.code) {
      if (!tile::sums_columns(i.op)) continue;
      line(format("for (int k = 0; k < {}; ++k) {", form_.cells));
      line(format("const index col = lane + {} * k;", form_.row_threads));
      line(format("if (col < cols) store(a.sums + ({} * bands + band) * cols, col, v{}[k]); }",
                  sum_of(i.dst), i.dst));
    }
  }

  void rows() {
    choose_arrays();
    line(format("const index lane = thread() % {}, own = thread() / {};", form_.row_threads,
                form_.row_threads));
    line(format("const u64 bands = (u64)blocks() * {}, band = (u64)block() * {} + own;",
                form_.rows_at_once, form_.rows_at_once));
    begin_sums();
    line(format("for (index first = block() * {}; first < rows; first += (index)bands) {",
                form_.rows_at_once));
    line("const index row = first + own;");
    find_places();
    for (const int slot : arrays_) line(format("{} v{}[{}];", type_, slot, form_.cells));
    for (int level = 0; level <= last_; ++level) {
      last_pass_ = level == last_;
      row_values(level);
      pass(level);
    }
    line("}");
    end_sums();
  }

  // Bands of rows into one, in their order: 16 threads for a column, then one.
  void fold() {
    line("struct FoldArgs {");
    for (size_t o = 0; o < p_.outputs.size(); ++o)
      line(format("{}* out{};", type_name(p_.outputs[o].dtype), o));
    line(format("{}* sums; i64 bands, cols; double late[{}]; };", type_,
                std::max<size_t>(late_numbers(p_).size(), 1)));
    line("ORT_KERNEL(fold, FoldArgs) {");
    line(format("ORT_SHARED {} parts[16][32];", type_));
    line("const u32 lane = thread() % 32, part = thread() / 32;");
    line("const u64 col = (u64)block() * 32 + lane, cols = (u64)a.cols, bands = (u64)a.bands;");
    for (const Instruction& i : p_.code) {
      if (!tile::sums_columns(i.op)) continue;
      const int output = p_.slots[i.dst].index;
      line(format("{ {} sum = 0;", type_));
      line(
          format("if (col < cols) for (u64 band = part; band < bands; band += 16) sum += "
                 "load(a.sums, ({} * bands + band) * cols + col);",
                 sum_of(i.dst)));
      line("parts[part][lane] = sum; barrier();");
      line("if (part == 0 && col < cols) { for (int k = 1; k < 16; ++k) sum += parts[k][lane];");
      line(format("store(a.out{}, col, as<{}>(sum * {})); } barrier(); }", output,
                  type_name(p_.outputs[output].dtype), number(i.p)));
    }
    line("}");
  }

  const TileProgram& p_;
  const TileForm& form_;
  const char* type_;
  std::vector<int> levels_;  // of slots
  int last_ = 0;
  bool loops_over_cells_ = false, last_pass_ = true, packed_ = false;
  std::set<int> arrays_;
  std::string text_;
};

int cells_for(int64_t cols, int threads) {
  int cells = 1;
  while (int64_t{cells} * threads < cols) cells *= 2;
  return cells;
}

}  // namespace

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

bool sums_columns(const TileProgram& program) {
  return std::any_of(program.code.begin(), program.code.end(),
                     [](const Instruction& i) { return tile::sums_columns(i.op); });
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

// As many as 16 bytes have of the widest operand.
int lanes_of(const TileProgram& program) {
  size_t widest = 2;
  for (const Port& port : program.inputs) {
    if (port.strided) return 0;
    if (in_packs(port)) widest = std::max(widest, size_of(port.dtype));
  }
  for (const Port& port : program.outputs) {
    if (port.space != Space::full) return 0;
    widest = std::max(widest, size_of(port.dtype));
  }
  return static_cast<int>(16 / widest);
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
    form.lanes = lanes_of(program);
    return form;
  }
  form.kind = TileForm::rows;
  const int64_t cols = extent.cols;
  form.row_threads = cols <= 256 ? 32 : cols <= 1024 ? 128 : cols <= 2048 ? 256 : 512;
  form.rows_at_once = form.row_threads == 32 ? 4 : 1;
  const int cells = cells_for(cols, form.row_threads);
  form.cells = cells <= 16 ? cells : 0;
  return form;
}

std::string tile_text(const TileProgram& program, const TileForm& form) {
  return Writer(program, form).run();
}

}  // namespace ort::cuda
