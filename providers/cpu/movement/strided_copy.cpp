// Rows go by memcpy where both sides are dense; a transposition goes in blocks that use whole cache
// lines on both sides.
#include "providers/cpu/movement/strided_copy.h"

#include <cstring>

#include "csrc/core/parallel.h"
#include "csrc/core/simd.h"

// After simd.h, as it names the targets.
#include "hwy/highway.h"

namespace ort::cpu {
namespace {

constexpr int64_t kBlock = 16;

// Four rows of four 32-bit words to columns.
void transpose_4x4(const uint32_t* from, int64_t from_stride, uint32_t* to, int64_t to_stride) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::FixedTag<uint32_t, 4> d;
  const hn::FixedTag<uint64_t, 2> pairs;
  const auto row = [&](int64_t i) { return hn::LoadU(d, from + i * from_stride); };
  const auto a = row(0), b = row(1), c = row(2), e = row(3);
  const auto ab_low = hn::BitCast(pairs, hn::InterleaveLower(d, a, b));
  const auto ab_high = hn::BitCast(pairs, hn::InterleaveUpper(d, a, b));
  const auto ce_low = hn::BitCast(pairs, hn::InterleaveLower(d, c, e));
  const auto ce_high = hn::BitCast(pairs, hn::InterleaveUpper(d, c, e));
  const auto put = [&](int64_t j, auto column) {
    hn::StoreU(hn::BitCast(d, column), d, to + j * to_stride);
  };
  put(0, hn::InterleaveLower(pairs, ab_low, ce_low));
  put(1, hn::InterleaveUpper(pairs, ab_low, ce_low));
  put(2, hn::InterleaveLower(pairs, ab_high, ce_high));
  put(3, hn::InterleaveUpper(pairs, ab_high, ce_high));
}

// target[i + j * to_stride] = source[i * from_stride + j] for i < rows, j < cols.
template <class T>
void transpose_block(const T* source, int64_t from_stride, T* target, int64_t to_stride,
                     int64_t rows, int64_t cols) {
  int64_t whole_rows = 0, whole_cols = 0;
  if constexpr (sizeof(T) == 4) {
    whole_rows = rows / 4 * 4;
    whole_cols = cols / 4 * 4;
    for (int64_t j = 0; j < whole_cols; j += 4)
      for (int64_t i = 0; i < whole_rows; i += 4)
        transpose_4x4(source + i * from_stride + j, from_stride, target + i + j * to_stride,
                      to_stride);
  }
  for (int64_t j = 0; j < cols; ++j)
    for (int64_t i = j < whole_cols ? whole_rows : 0; i < rows; ++i)
      target[i + j * to_stride] = source[i * from_stride + j];
}

}  // namespace

StridedCopy::StridedCopy(Sizes sizes, Sizes from_strides, Sizes to_strides, size_t element_bytes)
    : bytes_(element_bytes) {
  total_ = element_count(sizes);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 1) continue;
    const bool joins = !sizes_.empty() && from_.back() == from_strides[i] * sizes[i] &&
                       to_.back() == to_strides[i] * sizes[i];
    if (joins) {
      sizes_.back() *= sizes[i];
      from_.back() = from_strides[i];
      to_.back() = to_strides[i];
    } else {
      sizes_.push_back(sizes[i]);
      from_.push_back(from_strides[i]);
      to_.push_back(to_strides[i]);
    }
  }
  const auto take = [&](size_t axis) {
    sizes_.erase(sizes_.begin() + static_cast<int64_t>(axis));
    from_.erase(from_.begin() + static_cast<int64_t>(axis));
    to_.erase(to_.begin() + static_cast<int64_t>(axis));
  };
  if (!sizes_.empty()) {
    count_ = sizes_.back();
    row_from_ = from_.back();
    row_to_ = to_.back();
    take(sizes_.size() - 1);
  }
  // Transposed: another axis is the dense one of the source.
  if (row_from_ != 1 && row_from_ != 0) {
    for (size_t i = 0; i < sizes_.size(); ++i) {
      if (from_[i] != 1) continue;
      other_ = sizes_[i];
      other_from_ = 1;
      other_to_ = to_[i];
      take(i);
      break;
    }
  }
  rows_ = element_count(sizes_);
}

void clear(void* memory, size_t bytes) {
  parallel_for(static_cast<int64_t>((bytes + 4095) / 4096), static_cast<int64_t>(bytes / 4),
               [&](int64_t begin, int64_t end, int) {
                 const size_t from = static_cast<size_t>(begin) * 4096;
                 const size_t to = std::min(static_cast<size_t>(end) * 4096, bytes);
                 std::memset(static_cast<char*>(memory) + from, 0, to - from);
               });
}

void StridedCopy::run(const void* from, void* to) const {
  if (total_ == 0) return;
  parallel_for(rows_, total_, [&](int64_t begin, int64_t end, int) {
    run_rows(static_cast<const char*>(from), static_cast<char*>(to), begin, end);
  });
}

void StridedCopy::run_rows(const char* from, char* to, int64_t begin, int64_t end) const {
  Sizes at(sizes_.size());
  int64_t rest = begin;
  const int64_t bytes = static_cast<int64_t>(bytes_);
  for (size_t axis = sizes_.size(); axis-- > 0; rest /= sizes_[axis]) {
    at[axis] = rest % sizes_[axis];
    from += at[axis] * from_[axis] * bytes;
    to += at[axis] * to_[axis] * bytes;
  }
  for (int64_t row = begin; row < end; ++row) {
    other_ > 0 ? run_block(from, to) : run_row(from, to);
    for (size_t axis = sizes_.size(); axis-- > 0;) {
      from += from_[axis] * bytes;
      to += to_[axis] * bytes;
      if (++at[axis] < sizes_[axis]) break;
      from -= from_[axis] * sizes_[axis] * bytes;
      to -= to_[axis] * sizes_[axis] * bytes;
      at[axis] = 0;
    }
  }
}

void StridedCopy::run_row(const char* from, char* to) const {
  if (row_from_ == 1 && row_to_ == 1) {
    std::memcpy(to, from, static_cast<size_t>(count_) * bytes_);
    return;
  }
  with_word(bytes_, [&]<class T>() {
    const T* source = reinterpret_cast<const T*>(from);
    T* target = reinterpret_cast<T*>(to);
    if (row_from_ == 0 && row_to_ == 1) {
      std::fill_n(target, count_, *source);
      return;
    }
    for (int64_t i = 0; i < count_; ++i) target[i * row_to_] = source[i * row_from_];
  });
}

void StridedCopy::run_block(const char* from, char* to) const {
  with_word(bytes_, [&]<class T>() {
    const T* source = reinterpret_cast<const T*>(from);
    T* target = reinterpret_cast<T*>(to);
    for (int64_t j0 = 0; j0 < other_; j0 += kBlock)
      for (int64_t i0 = 0; i0 < count_; i0 += kBlock) {
        if (row_to_ == 1) {
          transpose_block(source + i0 * row_from_ + j0, row_from_, target + i0 + j0 * other_to_,
                          other_to_, std::min(kBlock, count_ - i0), std::min(kBlock, other_ - j0));
          continue;
        }
        for (int64_t j = j0; j < std::min(j0 + kBlock, other_); ++j)
          for (int64_t i = i0; i < std::min(i0 + kBlock, count_); ++i)
            target[i * row_to_ + j * other_to_] = source[i * row_from_ + j];
      }
  });
}

}  // namespace ort::cpu
