// Runs a tile program: tiles are dealt to threads in a fixed way, so that results repeat exactly.
#include "providers/cpu/tile/tile.h"

#include <cstring>
#include <set>

#include "csrc/core/parallel.h"
#include "providers/cpu/convert.h"
#include "providers/cpu/tile/byte_passes.h"
#include "providers/cpu/tile/narrow_rows.h"
#include "providers/cpu/tile/read_bytes.h"
#include "providers/cpu/tile/round_bytes.h"

namespace ort::cpu {
namespace {

using tile::Instruction;
using tile::over_cols;
using tile::over_rows;
using tile::Port;
using tile::Slot;
using tile::Space;
using tile::TileProgram;

constexpr int64_t kTileBytes = 32 << 10;  // of all registers and operands together

// Of functions, those that are an instruction or two of the processor.
bool is_light(TileOp op) {
  switch (op) {
    case TileOp::floor:
    case TileOp::ceil:
    case TileOp::round:
    case TileOp::sqrt:
    case TileOp::reciprocal:
    case TileOp::is_nan:
    case TileOp::is_inf:
    case TileOp::to_bf16:
    case TileOp::to_f16:
      return true;
    default:
      return false;
  }
}

#define ORT_CASE(NAME) case TileOp::NAME:
int64_t weight(TileOp op) {
  if (is_light(op)) return 1;
  switch (op) {
    case TileOp::dropout:
      ORT_TILE_FUNCTIONS(ORT_CASE)
      ORT_TILE_LIBRARY(ORT_CASE)
      return 6;
      ORT_TILE_REMAINDERS(ORT_CASE)
      return 30;
      ORT_TILE_FUNCTIONS_2(ORT_CASE)
      return 60;
    default:
      return 1;
  }
}
#undef ORT_CASE

// An instruction with what a binding knows of it.
template <class T>
struct Step : Instruction {
  TileFunctionOf<T> run;
  T number;                   // p
  TileFunctionOf<T> dense{};  // over a whole tile of narrow rows, where `whole` are one element
  int whole = 0;
  const ByteLoad* begins = {};  // what a product does besides
  const ByteStore* ends = {};   // what a store does besides
};

// Registers are of T.
template <class T>
class TileKernel final : public Kernel {
 public:
  TileKernel(std::shared_ptr<const TileProgram> program, tile::Extent extent, std::string name,
             tile::OperandLayouts layouts);
  void run(const Args& args) const override;
  size_t scratch_bytes() const override {
    return static_cast<size_t>(threads_) * thread_cells() * sizeof(T);
  }
  bool in_place(size_t in, size_t out) const override;
  std::string name() const override { return name_; }
  Layout layout_of_input(size_t in) const override {
    return in < layouts_.in.size() ? layouts_.in[in] : Layout();
  }
  Layout layout_of_output(size_t out) const override {
    return out < layouts_.out.size() ? layouts_.out[out] : Layout();
  }

 private:
  struct Tile {
    int64_t row, col, rows, cols;
    T** at;         // where each slot lies
    T* spare = {};  // an operand each, for narrow rows
  };
  // Of a thread: the slots' places, registers, column sums; on cache lines of their own.
  size_t pointer_cells() const {
    return (program_->slots.size() * sizeof(T*) + 63) / 64 * (64 / sizeof(T));
  }
  size_t thread_cells() const {
    return pointer_cells() + static_cast<size_t>(program_->registers * tile_stride_) +
           spare_cells() + sum_levels() * sum_cells();
  }
  size_t spare_cells() const { return narrow_ ? 3 * static_cast<size_t>(tile_stride_) : 0; }
  size_t sum_levels() const { return extent_.group > 0 ? 1 : kSumLevels; }
  size_t sum_cells() const { return sums_.size() * static_cast<size_t>(sum_stride_); }
  T* sums_of(T* memory, size_t level) const {
    return memory + thread_cells() - (sum_levels() - level) * sum_cells();
  }
  T* totals_of(T* memory) const { return sums_of(memory, kSumLevels - 1); }
  bool every_cell(Space space) const {
    return (over_rows(space) || extent_.rows == 1) && (over_cols(space) || extent_.cols == 1);
  }
  // What threads share: groups of rows or tiles.
  int64_t units() const {
    return extent_.group > 0 && row_tiles_ > 0 ? extent_.rows / extent_.group
                                               : row_tiles_ * col_tiles_;
  }
  void bind_steps();
  void shape_tiles();
  bool makes_nothing() const;
  void run_tiles(const Args& args, int64_t begin, int64_t end, T* memory) const;
  void run_group(const Args& args, int64_t group, T* memory, double* totals) const;
  void fold_sums(T* sums, double* totals) const;
  void place_slots(const Args& args, Tile& tile, T* registers, T* sums) const;
  void step(const Args& args, const Step<T>& i, const Tile& tile) const;
  void step_narrow(const Step<T>& i, const Tile& tile, TileArgsOf<T> t) const;
  bool is_dense(const Step<T>& i) const;
  int64_t first_cell(Space space, const Tile& tile) const;
  int64_t cells(Space space, const Tile& tile) const;
  void load(const Step<T>& i, const Tile& tile) const;
  void load_rows(const Step<T>& i, const Tile& tile) const;
  void store(const Step<T>& i, const Tile& tile) const;
  void load_bytes(const Step<T>& i, const Tile& tile) const;
  void store_bytes(const Step<T>& i, const Tile& tile) const;
  void join_sums(T* memory, size_t level) const;
  void combine(const Args& args, T* memory) const;

  std::shared_ptr<const TileProgram> program_;
  tile::Extent extent_;
  std::string name_;
  tile::OperandLayouts layouts_;
  std::vector<Step<T>> steps_;
  std::map<size_t, ByteLoad> byte_loads_;  // by instruction
  std::map<size_t, ByteStore> byte_stores_;
  std::unique_ptr<T[]> constants_;  // a vector of bools has no memory
  int64_t tile_rows_ = 1, tile_cols_ = 1, row_tiles_ = 0, col_tiles_ = 1, tile_stride_ = 0;
  struct Sum {
    size_t output;
    double scale;
  };
  std::vector<Sum> sums_;        // of columns
  int64_t sum_stride_ = 0;       // from one to the next
  bool narrow_ = false;          // rows are of a few elements
  std::vector<int64_t> sum_of_;  // by output: which sum it is, or -1
  int64_t work_ = 0;
  int threads_ = 1;
};

int64_t round_up(int64_t n) {
  return (n + 15) / 16 * 16;
}

template <class T>
TileKernel<T>::TileKernel(std::shared_ptr<const TileProgram> program, tile::Extent extent,
                          std::string name, tile::OperandLayouts layouts)
    : program_(std::move(program)),
      extent_(std::move(extent)),
      name_(std::move(name)),
      layouts_(std::move(layouts)) {
  extent_.inputs.resize(program_->inputs.size());
  shape_tiles();
  bind_steps();
  if (makes_nothing()) row_tiles_ = 0;
  sum_stride_ = round_up(extent_.group > 0 ? tile_rows_ * extent_.cols : extent_.cols);
  threads_ = threads_for(work_, units());
}

template <class T>
void TileKernel<T>::shape_tiles() {
  const int64_t live = program_->registers + static_cast<int64_t>(program_->inputs.size()) +
                       static_cast<int64_t>(program_->outputs.size());
  const auto width = static_cast<int64_t>(sizeof(T));
  const int64_t cells = std::clamp<int64_t>(kTileBytes / width / std::max<int64_t>(live, 1), 256,
                                            std::max<int64_t>(2048, 8192 / width));
  const auto [rows, cols] = std::pair(extent_.rows, extent_.cols);
  const bool whole = program_->whole_rows || extent_.group > 0 || cols <= cells;
  tile_cols_ = whole ? cols : cells;
  tile_rows_ = whole ? std::max<int64_t>(1, cells / std::max<int64_t>(cols, 1)) : 1;
  const auto sums = [](const Instruction& i) { return tile::sums_columns(i.op); };
  if (extent_.group > 0)
    tile_rows_ = std::min(tile_rows_, extent_.group);
  else if (std::any_of(program_->code.begin(), program_->code.end(), sums))
    tile_rows_ = std::min(tile_rows_, kSummedRows);
  tile_rows_ = std::clamp<int64_t>(tile_rows_, 1, std::max<int64_t>(rows, 1));
  narrow_ = tile_rows_ > 1 && tile_cols_ == cols && cols < narrow_rows::kColumns;
  row_tiles_ = (rows + tile_rows_ - 1) / tile_rows_;
  col_tiles_ = tile_cols_ > 0 ? (cols + tile_cols_ - 1) / tile_cols_ : 1;
  tile_stride_ = round_up(std::max(tile_rows_ * tile_cols_, std::max(tile_rows_, tile_cols_)));
}

template <class T>
void TileKernel<T>::bind_steps() {
  const int64_t counted = extent_.group > 0 ? extent_.group : extent_.cols;
  const auto number = [&](const tile::Number& n) { return static_cast<T>(n.at(counted)); };
  const auto& constants = program_->constants;
  constants_ = std::make_unique<T[]>(constants.size());
  std::transform(constants.begin(), constants.end(), constants_.get(), number);
  sum_of_.assign(program_->outputs.size(), -1);
  const int64_t loops = std::is_same_v<T, float> ? 1 : 4;  // an element at a time
  byte_loads_ = byte_loads(*program_);
  byte_stores_ = byte_stores(*program_);
  std::set<size_t> joined;
  for (const auto& [at, load] : byte_loads_) joined.insert(load.joined.begin(), load.joined.end());
  for (const auto& [at, store] : byte_stores_)
    joined.insert(store.joined.begin(), store.joined.end());
  for (size_t at = 0; at < program_->code.size(); ++at) {
    const Instruction& i = program_->code[at];
    const bool moves = i.op == TileOp::load || i.op == TileOp::store;
    steps_.push_back({i, moves ? nullptr : tile_function<T>(i.op, i.variant), number(i.p)});
    if (byte_loads_.count(at)) steps_.back().begins = &byte_loads_.at(at);
    if (byte_stores_.count(at)) steps_.back().ends = &byte_stores_.at(at);
    check(moves || steps_.back().run,
          "no instruction {} of {}: loop_function in providers/cpu/tile/tile_loops.cpp lacks its "
          "case",
          tile::name_of(i.op), program_->element);
    const Space space = program_->slots[i.dst].space;
    if (tile::sums_columns(i.op)) {
      const int output = program_->slots[i.dst].index;
      sum_of_[output] = static_cast<int64_t>(sums_.size());
      sums_.push_back({static_cast<size_t>(output), i.p.at(counted)});
    }
    const Space from = program_->slots[i.a].space | space;
    work_ += loops * weight(i.op) * (over_rows(from) ? extent_.rows : 1) *
             (over_cols(from) ? extent_.cols : 1);
    if (narrow_ && i.by_row && !tile::reduces_row(i.op) && !tile::sums_columns(i.op)) {
      Step<T>& step = steps_.back();
      const auto one = [&](int slot) {
        return slot >= 0 && program_->slots[slot].space == Space::scalar;
      };
      step.whole = one(i.a) + 2 * one(i.b) + 4 * one(i.c);
      step.dense = tile_function<T>(i.op, step.whole);
    }
    if (joined.count(at)) steps_.pop_back();
  }
}

// Without elements an axis may still be as long as it likes.
template <class T>
bool TileKernel<T>::makes_nothing() const {
  return std::all_of(program_->outputs.begin(), program_->outputs.end(), [&](const Port& port) {
    return (over_rows(port.space) && extent_.rows == 0) ||
           (over_cols(port.space) && extent_.cols == 0);
  });
}

template <class T>
bool TileKernel<T>::in_place(size_t in, size_t out) const {
  const Port& from = program_->inputs[in];
  const Port& to = program_->outputs[out];
  return every_cell(from.space) && every_cell(to.space) && !from.strided &&
         size_of(from.dtype) == size_of(to.dtype) && sum_of_[out] < 0 &&
         program_->last_read[in] <= program_->first_write[out];
}

template <class T>
void TileKernel<T>::run(const Args& args) const {
  T* memory = static_cast<T*>(args.scratch);
  const auto of = [&](int thread) { return memory + static_cast<size_t>(thread) * thread_cells(); };
  for (int thread = 0; thread < threads_ && !sums_.empty(); ++thread)
    std::fill_n(sums_of(of(thread), 0), sum_levels() * sum_cells(), T(0));
  parallel_for(
      units(), work_,
      [&](int64_t begin, int64_t end, int thread) {
        if (extent_.group == 0) return run_tiles(args, begin, end, of(thread));
        std::vector<double> totals(sums_.size() * static_cast<size_t>(extent_.cols));
        for (int64_t g = begin; g < end; ++g) run_group(args, g, of(thread), totals.data());
      },
      threads_);
  if (!sums_.empty() && extent_.group == 0) combine(args, memory);
}

// A group's tiles add cell by cell; what that gives is folded onto one row, with doubles before a
// cell has many terms.
template <class T>
void TileKernel<T>::run_group(const Args& args, int64_t group, T* memory, double* totals) const {
  Tile tile{};
  tile.at = reinterpret_cast<T**>(memory);
  tile.cols = extent_.cols;
  const int64_t begin = group * extent_.group, end = begin + extent_.group, cols = extent_.cols;
  T* sums = sums_of(memory, 0);
  std::fill_n(totals, sums_.size() * static_cast<size_t>(cols), 0.0);
  int64_t added = 0;
  for (tile.row = begin; tile.row < end; tile.row += tile.rows) {
    tile.rows = std::min(tile_rows_, end - tile.row);
    place_slots(args, tile, memory + pointer_cells(), sums);
    for (const Step<T>& i : steps_) step(args, i, tile);
    if (++added % kSummedRows == 0) fold_sums(sums, totals);
  }
  fold_sums(sums, totals);
  for (size_t s = 0; s < sums_.size(); ++s) {
    for (int64_t c = 0; c < cols; ++c)
      sums[c] = static_cast<T>(totals[static_cast<int64_t>(s) * cols + c] * sums_[s].scale);
    const size_t out = sums_[s].output;
    convert(program_->element, sums, 0, program_->outputs[out].dtype, args.out[out], group * cols,
            cols);
    std::fill_n(sums, cols, T(0));
  }
}

template <class T>
void TileKernel<T>::fold_sums(T* sums, double* totals) const {
  const int64_t cols = extent_.cols;
  for (size_t s = 0; s < sums_.size(); ++s, sums += sum_stride_, totals += cols) {
    int64_t rows = tile_rows_;
    for (; rows > 1; rows -= rows / 2) {
      const int64_t half = rows / 2 * cols;
      const T* upper = sums + rows * cols - half;
#pragma omp simd
      for (int64_t i = 0; i < half; ++i) sums[i] += upper[i];
    }
    for (int64_t c = 0; c < cols; ++c) totals[c] += static_cast<double>(sums[c]);
    std::fill_n(sums, tile_rows_ * cols, T(0));
  }
}

// Of a block of rows into the thread's totals.
template <class T>
void TileKernel<T>::join_sums(T* memory, size_t level) const {
  T *sums = sums_of(memory, level), *joined = sums_of(memory, level + 1);
  for (size_t i = 0; i < sum_cells(); ++i) joined[i] += sums[i];
  std::fill_n(sums, sum_cells(), T(0));
}

// Thread by thread in order: the same sum whatever thread was first.
template <class T>
void TileKernel<T>::combine(const Args& args, T* memory) const {
  for (size_t s = 0; s < sums_.size(); ++s) {
    const auto of = [&](int thread) {
      T* own = memory + static_cast<size_t>(thread) * thread_cells();
      return totals_of(own) + static_cast<int64_t>(s) * sum_stride_;
    };
    T* sum = of(0);
    for (int thread = 1; thread < threads_; ++thread)
      for (int64_t i = 0; i < extent_.cols; ++i) sum[i] += of(thread)[i];
    const size_t out = sums_[s].output;
    convert(program_->element, sum, 0, program_->outputs[out].dtype, args.out[out], 0,
            extent_.cols);
  }
}

template <class T>
void TileKernel<T>::run_tiles(const Args& args, int64_t begin, int64_t end, T* memory) const {
  Tile tile{};
  tile.at = reinterpret_cast<T**>(memory);
  for (int64_t t = begin; t < end; ++t) {
    const int64_t row = t / col_tiles_ * tile_rows_;
    int64_t block = row / kSummedRows, before = tile.row / kSummedRows;
    for (size_t level = 0; level + 1 < kSumLevels && block != before; ++level) {
      join_sums(memory, level);
      block /= kSummedRows;
      before /= kSummedRows;
    }
    tile.row = row;
    tile.col = t % col_tiles_ * tile_cols_;
    tile.rows = std::min(tile_rows_, extent_.rows - tile.row);
    tile.cols = std::min(tile_cols_, extent_.cols - tile.col);
    place_slots(args, tile, memory + pointer_cells(), sums_of(memory, 0));
    for (const Step<T>& i : steps_) step(args, i, tile);
  }
  for (size_t level = 0; level + 1 < kSumLevels; ++level) join_sums(memory, level);
}

// Where a tile begins in an operand, and its cells there: they are one run, as a tile has whole
// rows or one.
template <class T>
int64_t TileKernel<T>::first_cell(Space space, const Tile& tile) const {
  if (space == Space::full) return tile.row * extent_.cols + tile.col;
  return space == Space::row ? tile.col : space == Space::column ? tile.row : int64_t{0};
}
template <class T>
int64_t TileKernel<T>::cells(Space space, const Tile& tile) const {
  return (over_rows(space) ? tile.rows : 1) * (over_cols(space) ? tile.cols : 1);
}

template <class T>
void TileKernel<T>::place_slots(const Args& args, Tile& tile, T* registers, T* sums) const {
  tile.spare = registers + program_->registers * tile_stride_;
  // What is converted finds its own place in memory of another type.
  const auto place = [&](void* memory, const Port& port, Space space) {
    const bool as_it_is = port.dtype == program_->element && !port.strided;
    return static_cast<T*>(memory) + (as_it_is ? first_cell(space, tile) : 0);
  };
  for (size_t s = 0; s < program_->slots.size(); ++s) {
    const Slot& slot = program_->slots[s];
    switch (slot.kind) {
      case Slot::Kind::reg:
        tile.at[s] = registers + slot.index * tile_stride_;
        break;
      case Slot::Kind::constant:
        tile.at[s] = constants_.get() + slot.index;
        break;
      case Slot::Kind::input:
        tile.at[s] = place(args.in[slot.index], program_->inputs[slot.index], slot.space);
        break;
      case Slot::Kind::output:
        tile.at[s] = sum_of_[slot.index] >= 0
                         ? sums + sum_of_[slot.index] * sum_stride_ + tile.col
                         : place(args.out[slot.index], program_->outputs[slot.index], slot.space);
        break;
    }
  }
}

template <class T>
void TileKernel<T>::step(const Args& args, const Step<T>& i, const Tile& tile) const {
  if (i.begins) return load_bytes(i, tile);
  if (i.op == TileOp::load) return load(i, tile);
  if (i.op == TileOp::store) return store(i, tile);
  const auto operand = [&](int slot) { return slot >= 0 ? tile.at[slot] : nullptr; };
  const auto stride = [&](int slot) -> int64_t {
    if (slot < 0) return 0;
    const Space space = program_->slots[slot].space;
    return space == Space::full ? tile.cols : space == Space::column ? 1 : 0;
  };
  TileArgsOf<T> t{};
  t.dst = operand(i.dst);
  t.a = operand(i.a);
  t.b = operand(i.b);
  t.c = operand(i.c);
  t.p = i.number;
  t.variant = i.variant;
  if (i.by_row && is_dense(i)) {
    t.count = tile.rows * tile.cols;
    return i.run(t);
  }
  if (i.by_row && narrow_ && !tile::sums_columns(i.op)) return step_narrow(i, tile, t);
  if (i.by_row) {
    t.count = tile.cols;
    const bool by_cell = extent_.group > 0 && tile::sums_columns(i.op);
    const int64_t dst = by_cell ? tile.cols : stride(i.dst), a = stride(i.a), b = stride(i.b),
                  c = stride(i.c);
    for (int64_t row = 0; row < tile.rows; ++row) {
      i.run(t);
      t.dst += dst;
      t.a += a;
      t.b += b;
      t.c += c;
    }
    return;
  }
  const Space to = program_->slots[i.dst].space;
  const Space second = i.b >= 0 ? program_->slots[i.b].space : to;
  const bool rows = over_rows(to), cols = over_cols(to | program_->slots[i.a].space | second);
  t.count = (rows ? tile.rows : 1) * (cols ? tile.cols : 1);
  if (i.op == TileOp::dropout) {
    std::memcpy(&t.key, args.in[program_->slots[i.b].index], sizeof t.key);
    t.counter = i.counter;
    t.index = static_cast<uint64_t>(tile.row * extent_.cols + tile.col);
  }
  i.run(t);
}

template <class T>
void TileKernel<T>::step_narrow(const Step<T>& i, const Tile& tile, TileArgsOf<T> t) const {
  const auto space = [&](int slot) { return program_->slots[slot].space; };
  if constexpr (std::is_floating_point_v<T>) {
    if (tile::reduces_row(i.op)) {
      const auto apart = [&](int slot) -> int64_t {
        return slot < 0 || !over_rows(space(slot)) ? 0 : over_cols(space(slot)) ? tile.cols : 1;
      };
      t.count = tile.cols;
      return narrow_rows::reduce_rows(i.op, t, tile.rows, apart(i.a), apart(i.b));
    }
  }
  const auto spread = [&](int slot, const T* from, int64_t at) {
    if (slot < 0 || space(slot) == Space::full || space(slot) == Space::scalar) return from;
    T* to = tile.spare + at * tile_stride_;
    if (space(slot) == Space::row)
      narrow_rows::repeat_rows(from, tile.rows, tile.cols, to);
    else
      narrow_rows::repeat_in_rows(from, tile.rows, tile.cols, to);
    return static_cast<const T*>(to);
  };
  t.a = spread(i.a, t.a, 0);
  t.b = spread(i.b, t.b, 1);
  t.c = spread(i.c, t.c, 2);
  t.count = tile.rows * tile.cols;
  t.variant = i.whole;
  i.dense(t);
}

// Whether it adds a tile to the sums of a group cell by cell.
template <class T>
bool TileKernel<T>::is_dense(const Step<T>& i) const {
  if (extent_.group == 0 || !tile::sums_columns(i.op)) return false;
  const auto full = [&](int slot) {
    return slot < 0 || program_->slots[slot].space == Space::full;
  };
  return full(i.a) && full(i.b);
}

template <class T>
void TileKernel<T>::load(const Step<T>& i, const Tile& tile) const {
  const int input = program_->slots[i.a].index;
  const Port& port = program_->inputs[input];
  if (port.strided) return load_rows(i, tile);
  convert(port.dtype, tile.at[i.a], first_cell(port.space, tile), program_->element, tile.at[i.dst],
          0, cells(port.space, tile));
}

// Each row has a place of its own; over an axis on which the operand does not vary they are one.
template <class T>
void TileKernel<T>::load_rows(const Step<T>& i, const Tile& tile) const {
  const int input = program_->slots[i.a].index;
  const Port& port = program_->inputs[input];
  const tile::Rows& axes = extent_.inputs[input];
  const bool wide = over_cols(port.space);
  const int64_t cols = wide ? tile.cols : 1;
  T* to = tile.at[i.dst];
  for (int64_t r = 0, same = 0; r < tile.rows; r += same, to += same * cols) {
    int64_t offset = wide ? tile.col : 0, rest = tile.row + r;
    same = axes.strides.back() == 0 ? axes.sizes.back() - rest % axes.sizes.back() : 1;
    same = std::min(same, tile.rows - r);
    for (size_t axis = axes.sizes.size(); axis-- > 0; rest /= axes.sizes[axis])
      offset += rest % axes.sizes[axis] * axes.strides[axis];
    convert(port.dtype, tile.at[i.a], offset, program_->element, to, 0, cols);
    for (int64_t done = cols; done < same * cols; done *= 2)
      std::copy_n(to, std::min(done, same * cols - done), to + done);
  }
}

template <class T>
void TileKernel<T>::load_bytes(const Step<T>& i, const Tile& tile) const {
  const Port& port = program_->inputs[program_->slots[i.begins->from].index];
  const auto zero = static_cast<float>(i.begins->zero < 0 ? T(0) : *tile.at[i.begins->zero]);
  const auto scale = static_cast<float>(*tile.at[i.begins->scale]);
  const void* from = tile.at[i.begins->from];
  const int64_t first = first_cell(port.space, tile), count = cells(port.space, tile);
  auto* to = reinterpret_cast<float*>(tile.at[i.dst]);
  if (port.dtype == DType::u8)
    read_bytes(static_cast<const uint8_t*>(from) + first, count, zero, scale, to);
  else
    read_bytes(static_cast<const int8_t*>(from) + first, count, zero, scale, to);
}

template <class T>
void TileKernel<T>::store_bytes(const Step<T>& i, const Tile& tile) const {
  const Port& port = program_->outputs[program_->slots[i.dst].index];
  const auto number = [&](int slot, T otherwise) {
    return static_cast<float>(slot < 0 ? otherwise : *tile.at[slot]);
  };
  const ByteRounding how{number(i.ends->divisor, 1), number(i.ends->zero, 0),
                         number(i.ends->low, 0), number(i.ends->high, 0)};
  const auto* from = reinterpret_cast<const float*>(tile.at[i.ends->from]);
  const int64_t first = first_cell(port.space, tile), count = cells(port.space, tile);
  if (port.dtype == DType::u8)
    round_to_bytes(from, count, how, reinterpret_cast<uint8_t*>(tile.at[i.dst]) + first);
  else
    round_to_bytes(from, count, how, reinterpret_cast<int8_t*>(tile.at[i.dst]) + first);
}

template <class T>
void TileKernel<T>::store(const Step<T>& i, const Tile& tile) const {
  if (i.ends) return store_bytes(i, tile);
  const Port& port = program_->outputs[program_->slots[i.dst].index];
  convert(program_->element, tile.at[i.a], 0, port.dtype, tile.at[i.dst],
          first_cell(port.space, tile), cells(port.space, tile));
}

}  // namespace

std::unique_ptr<Kernel> make_tile_kernel(std::shared_ptr<const TileProgram> program,
                                         tile::Extent extent, std::string name,
                                         tile::OperandLayouts layouts) {
  const DType element = program->element;
  return dispatch(element, [&]<class T>() -> std::unique_ptr<Kernel> {
    return std::make_unique<TileKernel<T>>(std::move(program), std::move(extent), std::move(name),
                                           std::move(layouts));
  });
}

}  // namespace ort::cpu
