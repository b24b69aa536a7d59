// Copies a box of elements between two strided layouts: every op that only moves data is one or a
// few of these. movement.cpp makes them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "csrc/core/dim.h"
#include "csrc/core/error.h"

namespace ort::cpu {

struct Word16 {
  uint64_t parts[2];
};

// Calls f with a type of as many bytes: what an element is where it is only moved.
template <class F>
void with_word(size_t bytes, F&& f) {
  switch (bytes) {
    case 1:
      return f.template operator()<uint8_t>();
    case 2:
      return f.template operator()<uint16_t>();
    case 4:
      return f.template operator()<uint32_t>();
    case 8:
      return f.template operator()<uint64_t>();
    case 16:
      return f.template operator()<Word16>();
    default:
      fail("elements of {} bytes cannot be moved", bytes);
  }
}

void clear(void* memory, size_t bytes);  // to zero, by several threads where it is much

class StridedCopy {
 public:
  // Strides in elements; 0 repeats. Axes that run on into each other are joined.
  StridedCopy(Sizes sizes, Sizes from_strides, Sizes to_strides, size_t element_bytes);
  void run(const void* from, void* to) const;  // pointers to the box's first element

 private:
  void run_rows(const char* from, char* to, int64_t begin, int64_t end) const;
  void run_row(const char* from, char* to) const;
  void run_block(const char* from, char* to) const;

  Sizes sizes_, from_, to_;                            // without the axes that a row or block takes
  int64_t rows_ = 1;                                   // how many rows or blocks
  int64_t count_ = 1, row_from_ = 1, row_to_ = 1;      // the innermost axis
  int64_t other_ = 0, other_from_ = 0, other_to_ = 0;  // a second one, when data is transposed
  size_t bytes_;
  int64_t total_ = 0;
};

}  // namespace ort::cpu
