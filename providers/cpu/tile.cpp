// Runs a tile program: tiles are dealt to threads in a fixed way, so that results repeat exactly.
#include "providers/cpu/tile.h"

#include <cstring>

#include "providers/cpu/parallel.h"

namespace ort::cpu {
namespace {

constexpr int64_t kTileBytes = 32 << 10;  // of all registers and operands together

int64_t weight(TileOp op) {
  switch (op) {
    case TileOp::exp:
    case TileOp::log:
    case TileOp::erf:
    case TileOp::tanh:
    case TileOp::sigmoid:
    case TileOp::gelu:
    case TileOp::gelu_tanh:
    case TileOp::silu:
    case TileOp::sin:
    case TileOp::cos:
    case TileOp::dropout:
      return 6;
    case TileOp::pow:
      return 60;
    default:
      return 1;
  }
}

class TileKernel final : public Kernel {
 public:
  TileKernel(TileProgram program, std::string name);
  void run(const Args& args) const override;
  size_t scratch_bytes() const override {
    return static_cast<size_t>(threads_) * thread_floats() * sizeof(float);
  }
  bool in_place(size_t in, size_t out) const override;
  std::string name() const override { return name_; }

 private:
  struct Tile {
    int64_t row, col, rows, cols;
    float** at;  // where each slot lies
  };
  size_t thread_floats() const {
    const size_t pointers = (program_.slots.size() * sizeof(float*) + 63) / 64 * 16;
    const int64_t cells = program_.registers * tile_stride_ + sums_ * sum_stride_;
    return pointers + static_cast<size_t>(cells);
  }
  void run_tiles(const Args& args, int64_t begin, int64_t end, float* memory) const;
  void place_slots(const Args& args, Tile& tile, float* registers, float* sums) const;
  void step(const Args& args, const TileInstruction& i, const Tile& tile) const;
  void load(const TileInstruction& i, const Tile& tile) const;
  void store(const TileInstruction& i, const Tile& tile) const;
  void combine(const Args& args, float* memory, int threads) const;
  float* sums_of(float* memory) const {
    return memory + thread_floats() - static_cast<size_t>(sums_ * sum_stride_);
  }

  TileProgram program_;
  std::string name_;
  int64_t tile_rows_ = 1, tile_cols_ = 1, row_tiles_ = 0, col_tiles_ = 1, tile_stride_ = 0;
  int64_t sums_ = 0, sum_stride_ = 0;  // column sums: how many, and their distance
  std::vector<int64_t> sum_of_;        // by output: which column sum it is, or -1
  int64_t work_ = 0;
  int threads_ = 1;
};

int64_t round_up(int64_t n) {
  return (n + 15) / 16 * 16;
}

TileKernel::TileKernel(TileProgram program, std::string name)
    : program_(std::move(program)), name_(std::move(name)) {
  const int64_t live = program_.registers + static_cast<int64_t>(program_.inputs.size()) +
                       static_cast<int64_t>(program_.outputs.size());
  const int64_t cells = std::clamp<int64_t>(kTileBytes / 4 / std::max<int64_t>(live, 1), 256, 2048);
  const bool whole = program_.whole_rows || program_.cols <= cells;
  tile_cols_ = whole ? program_.cols : cells;
  tile_rows_ = whole ? std::max<int64_t>(1, cells / std::max<int64_t>(program_.cols, 1)) : 1;
  tile_rows_ = std::clamp<int64_t>(tile_rows_, 1, std::max<int64_t>(program_.rows, 1));
  row_tiles_ = (program_.rows + tile_rows_ - 1) / tile_rows_;
  col_tiles_ = tile_cols_ > 0 ? (program_.cols + tile_cols_ - 1) / tile_cols_ : 1;
  tile_stride_ = round_up(std::max(tile_rows_ * tile_cols_, std::max(tile_rows_, tile_cols_)));
  sum_of_.assign(program_.outputs.size(), -1);
  for (const TileInstruction& i : program_.code) {
    const Space space = program_.slots[i.dst].space;
    if (i.op == TileOp::column_sum || i.op == TileOp::column_dot)
      sum_of_[program_.slots[i.dst].index] = sums_++;
    const Space from = program_.slots[i.a].space | space;
    work_ += weight(i.op) * (over_rows(from) ? program_.rows : 1) *
             (over_cols(from) ? program_.cols : 1);
  }
  // Without elements an axis may still be as long as it likes.
  const bool makes_nothing =
      std::all_of(program_.outputs.begin(), program_.outputs.end(), [&](const TilePort& port) {
        return (over_rows(port.space) && program_.rows == 0) ||
               (over_cols(port.space) && program_.cols == 0);
      });
  if (makes_nothing) row_tiles_ = 0;
  sum_stride_ = round_up(program_.cols);
  threads_ = threads_for(work_, row_tiles_ * col_tiles_);
}

bool TileKernel::in_place(size_t in, size_t out) const {
  const TilePort& from = program_.inputs[in];
  const TilePort& to = program_.outputs[out];
  return from.space == Space::full && from.row_sizes.empty() && from.dtype == to.dtype &&
         from.dtype == DType::f32 && to.space == Space::full && sum_of_[out] < 0 &&
         program_.last_read[in] <= program_.first_write[out];
}

void TileKernel::run(const Args& args) const {
  const int64_t tiles = row_tiles_ * col_tiles_;
  float* memory = static_cast<float*>(args.scratch);
  const auto start_sums = [&](float* mine) {
    std::memset(sums_of(mine), 0, static_cast<size_t>(sums_ * sum_stride_) * sizeof(float));
  };
  int threads = omp_in_parallel() ? 1 : std::min(threads_, omp_get_max_threads());
  if (threads <= 1) {
    start_sums(memory);
    run_tiles(args, 0, tiles, memory);
    threads = 1;
  } else {
#pragma omp parallel num_threads(threads)
    {
      float* mine = memory + static_cast<size_t>(omp_get_thread_num()) * thread_floats();
      start_sums(mine);
      const Share share(tiles, omp_get_thread_num(), omp_get_num_threads());
      run_tiles(args, share.begin, share.end, mine);
#pragma omp single
      threads = omp_get_num_threads();
    }
  }
  if (sums_ > 0) combine(args, memory, threads);
}

// Thread by thread in order: the same sum whatever thread was first.
void TileKernel::combine(const Args& args, float* memory, int threads) const {
  for (size_t out = 0; out < sum_of_.size(); ++out) {
    if (sum_of_[out] < 0) continue;
    float* to = static_cast<float*>(args.out[out]);
    for (int thread = 0; thread < threads; ++thread) {
      const float* from = sums_of(memory + static_cast<size_t>(thread) * thread_floats()) +
                          sum_of_[out] * sum_stride_;
      for (int64_t i = 0; i < program_.cols; ++i) to[i] = thread == 0 ? from[i] : to[i] + from[i];
    }
  }
}

void TileKernel::run_tiles(const Args& args, int64_t begin, int64_t end, float* memory) const {
  float* registers = memory + (program_.slots.size() * sizeof(float*) + 63) / 64 * 16;
  Tile tile{};
  tile.at = reinterpret_cast<float**>(memory);
  for (int64_t t = begin; t < end; ++t) {
    tile.row = t / col_tiles_ * tile_rows_;
    tile.col = t % col_tiles_ * tile_cols_;
    tile.rows = std::min(tile_rows_, program_.rows - tile.row);
    tile.cols = std::min(tile_cols_, program_.cols - tile.col);
    place_slots(args, tile, registers, sums_of(memory));
    for (const TileInstruction& i : program_.code) step(args, i, tile);
  }
}

void TileKernel::place_slots(const Args& args, Tile& tile, float* registers, float* sums) const {
  const auto offset = [&](Space space) {
    if (space == Space::full) return tile.row * program_.cols + tile.col;
    return space == Space::row ? tile.col : space == Space::column ? tile.row : int64_t{0};
  };
  for (size_t s = 0; s < program_.slots.size(); ++s) {
    const TileSlot& slot = program_.slots[s];
    switch (slot.kind) {
      case TileSlot::Kind::reg:
        tile.at[s] = registers + slot.index * tile_stride_;
        break;
      case TileSlot::Kind::constant:
        tile.at[s] = const_cast<float*>(program_.constants.data()) + slot.index;
        break;
      case TileSlot::Kind::input:  // conversions place themselves
        tile.at[s] = static_cast<float*>(args.in[slot.index]);
        if (program_.inputs[slot.index].dtype == DType::f32) {
          if (program_.inputs[slot.index].row_sizes.empty()) tile.at[s] += offset(slot.space);
        }
        break;
      case TileSlot::Kind::output:
        if (sum_of_[slot.index] >= 0)
          tile.at[s] = sums + sum_of_[slot.index] * sum_stride_ + tile.col;
        else if (program_.outputs[slot.index].dtype == DType::f32)
          tile.at[s] = static_cast<float*>(args.out[slot.index]) + offset(slot.space);
        else
          tile.at[s] = static_cast<float*>(args.out[slot.index]);
        break;
    }
  }
}

void TileKernel::step(const Args& args, const TileInstruction& i, const Tile& tile) const {
  if (i.op == TileOp::load) return load(i, tile);
  if (i.op == TileOp::store) return store(i, tile);
  const auto operand = [&](int slot) { return slot >= 0 ? tile.at[slot] : nullptr; };
  const auto stride = [&](int slot) -> int64_t {
    if (slot < 0) return 0;
    const Space space = program_.slots[slot].space;
    return space == Space::full ? tile.cols : space == Space::column ? 1 : 0;
  };
  const Space to = program_.slots[i.dst].space;
  TileArgs t{};
  t.dst = operand(i.dst);
  t.a = operand(i.a);
  t.b = operand(i.b);
  t.c = operand(i.c);
  t.p = i.p;
  if (i.by_row) {
    t.count = tile.cols;
    const int64_t dst = stride(i.dst), a = stride(i.a), b = stride(i.b), c = stride(i.c);
    for (int64_t row = 0; row < tile.rows; ++row) {
      i.run(t);
      t.dst += dst;
      t.a += a;
      t.b += b;
      t.c += c;
    }
    return;
  }
  const bool rows = over_rows(to), cols = over_cols(to | program_.slots[i.a].space);
  t.count = (rows ? tile.rows : 1) * (cols ? tile.cols : 1);
  if (i.op == TileOp::dropout) {
    std::memcpy(&t.key, args.in[program_.slots[i.b].index], sizeof t.key);
    t.counter = i.counter;
    t.index = static_cast<uint64_t>(tile.row * program_.cols + tile.col);
  }
  i.run(t);
}

template <class T>
void convert(const void* from, int64_t offset, float* to, int64_t count) {
  const T* source = static_cast<const T*>(from) + offset;
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(source[i]);
}

void TileKernel::load(const TileInstruction& i, const Tile& tile) const {
  const TilePort& port = program_.inputs[program_.slots[i.a].index];
  const int64_t rows = over_rows(port.space) ? tile.rows : 1;
  const int64_t cols = over_cols(port.space) ? tile.cols : 1;
  for (int64_t r = 0; r < rows; ++r) {
    int64_t offset = over_cols(port.space) ? tile.col : 0;
    if (!port.row_sizes.empty()) {
      int64_t rest = tile.row + r;
      for (size_t axis = port.row_sizes.size(); axis-- > 0;) {
        offset += rest % port.row_sizes[axis] * port.row_strides[axis];
        rest /= port.row_sizes[axis];
      }
    } else if (over_rows(port.space)) {
      offset += (tile.row + r) * (over_cols(port.space) ? program_.cols : 1);
    }
    dispatch(port.dtype,
             [&]<class T>() { convert<T>(tile.at[i.a], offset, tile.at[i.dst] + r * cols, cols); });
  }
}

void TileKernel::store(const TileInstruction& i, const Tile& tile) const {
  const TilePort& port = program_.outputs[program_.slots[i.dst].index];
  const bool rows = over_rows(port.space), cols = over_cols(port.space);
  const int64_t count = (rows ? tile.rows : 1) * (cols ? tile.cols : 1);
  const int64_t offset = (rows ? tile.row * (cols ? program_.cols : 1) : 0) + (cols ? tile.col : 0);
  const float* from = tile.at[i.a];
  dispatch(port.dtype, [&]<class T>() {
    T* to = reinterpret_cast<T*>(tile.at[i.dst]) + offset;
    for (int64_t k = 0; k < count; ++k) {
      if constexpr (std::is_same_v<T, bool>)
        to[k] = from[k] != 0.0f;
      else
        to[k] = static_cast<T>(from[k]);
    }
  });
}

}  // namespace

std::unique_ptr<Kernel> make_tile_kernel(TileProgram program, std::string name) {
  return std::make_unique<TileKernel>(std::move(program), std::move(name));
}

}  // namespace ort::cpu
