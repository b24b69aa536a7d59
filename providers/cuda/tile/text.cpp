// Around the instructions: arguments, and kernels with a thread for each element or for each
// column.
#include "providers/cuda/tile/text.h"

#include <algorithm>

#include "providers/cuda/tile/statements.h"

namespace ort::cuda {
namespace {

using tile::Instruction;
using tile::Role;
using tile::Space;
using tile::TileProgram;

void arguments(Statements& out) {
  const TileProgram& p = out.program();
  out.line(format("typedef {} index;", out.form().index));
  out.line("struct Args {");
  for (size_t i = 0; i < p.inputs.size(); ++i)
    out.line(format("const {}* in{};", type_name(p.inputs[i].dtype), i));
  for (size_t o = 0; o < p.outputs.size(); ++o)
    out.line(format("{}* out{};", type_name(p.outputs[o].dtype), o));
  out.line(format("{}* sums; i32* failure; i64 mark, rows, cols;", out.type()));
  for (size_t i = 0; i < p.inputs.size(); ++i)
    if (p.inputs[i].strided)
      out.line(format("i64 sizes{}[{}], strides{}[{}];", i, out.form().axes, i, out.form().axes));
  const size_t late = late_numbers(p).size();
  if (late > 0) out.line(format("double late[{}];", late));
  if (const size_t dropouts = counters_of(p).size())
    out.line(format("u64 counters[{}];", dropouts));
  out.line("};");
}

void flat(Statements& out) {
  const TileProgram& p = out.program();
  out.loops_over_cells = true;
  out.line("const index rows = (index)a.rows, cols = (index)a.cols;");
  out.line("const index count = rows * cols, step = (index)threads() * blocks();");
  out.line("for (index at = (index)block() * threads() + thread(); at < count; at += step) {");
  if (!is_rowless(p))
    out.line("const index row = at / cols, col = at - row * cols; (void)row; (void)col;");
  out.find_places();
  for (const Instruction& i : p.code) out.element(i);
  out.line("} }");
}

// As flat, several elements at once.
void packs(Statements& out) {
  const TileProgram& p = out.program();
  const int lanes = out.form().lanes;
  out.line(format("const index cols = (index)a.cols, count = (index)a.rows * cols / {};", lanes));
  out.line("const index step = (index)threads() * blocks(); (void)cols;");
  out.line(
      "for (index pack = (index)block() * threads() + thread(); pack < count; pack += step) {");
  out.line(format("const index first = pack * {};", lanes));
  if (!is_rowless(p))
    out.line("const index row = first / cols, left = first - row * cols; (void)row; (void)left;");
  out.find_places();
  std::set<size_t> inputs, outputs;
  for (size_t i = 0; i < p.inputs.size(); ++i)
    if (in_packs(p.inputs[i])) inputs.insert(i);
  for (size_t o = 0; o < p.outputs.size(); ++o) outputs.insert(o);
  out.load_packs(inputs);
  out.begin_packs(outputs);
  out.line("#pragma unroll");
  out.line(format("for (int j = 0; j < {}; ++j) {", lanes));
  out.line("const index at = first + j; (void)at;");
  for (const Instruction& i : p.code) out.element(i);
  out.line("}");
  out.store_packs(outputs);
  out.line("} }");
}

void rows(Statements& out) {
  out.line("const index rows = (index)a.rows, cols = (index)a.cols;");
  write_rows(out);
  out.line("}");
}

// Bands of rows into one, in their order: 16 threads for a column, then one.
void fold(Statements& out) {
  const TileProgram& p = out.program();
  out.line("struct FoldArgs {");
  for (size_t o = 0; o < p.outputs.size(); ++o)
    out.line(format("{}* out{};", type_name(p.outputs[o].dtype), o));
  out.line(format("{}* sums; i64 bands, cols; double late[{}]; };", out.type(),
                  std::max<size_t>(late_numbers(p).size(), 1)));
  out.line("ORT_KERNEL(fold, FoldArgs, 512) {");
  out.line(format("ORT_SHARED {} parts[16][32];", out.type()));
  out.line("const u32 lane = thread() % 32, part = thread() / 32;");
  out.line("const u64 col = (u64)block() * 32 + lane, cols = (u64)a.cols, bands = (u64)a.bands;");
  for (const Instruction& i : p.code) {
    if (!tile::sums_columns(i.op)) continue;
    const int output = p.slots[i.dst].index;
    if (out.sum_of(i.dst) > 0) out.line("barrier();");  // of the threads that read the sum before
    out.line(format("{ {} sum = 0;", out.type()));
    out.line(
        format("if (col < cols) for (u64 band = part; band < bands; band += 16) sum += "
               "load(a.sums, ({} * bands + band) * cols + col);",
               out.sum_of(i.dst)));
    out.line("parts[part][lane] = sum; barrier();");
    out.line("if (part == 0 && col < cols) { for (int k = 1; k < 16; ++k) sum += parts[k][lane];");
    out.line(format("store(a.out{}, col, as<{}>(sum * {})); } }", output,
                    type_name(p.outputs[output].dtype), out.number(i.p)));
  }
  out.line("}");
}

}  // namespace

std::string tile_text(const TileProgram& program, const TileForm& form) {
  Statements out(program, form);
  arguments(out);
  out.line(format("ORT_KERNEL(run, Args, {}) {", form.threads()));
  form.kind == TileForm::flat ? flat(out) : rows(out);
  if (form.lanes > 0) {
    out.packed = true;
    out.line(format("ORT_KERNEL(packs, Args, {}) {", form.threads()));
    form.kind == TileForm::flat ? packs(out) : rows(out);
    out.packed = false;
  }
  if (sums_columns(program)) fold(out);
  return out.take();
}

}  // namespace ort::cuda
