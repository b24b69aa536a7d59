// What a Resize is on the cpu: the maps of its axes, and how its operands lie.
#pragma once

#include <memory>

#include "providers/cpu/provider.h"
#include "providers/resize.h"

namespace ort::cpu {

// Where these are among the inputs.
constexpr size_t kResizeRoi = 1, kResizeScales = 2, kResizeSizes = 3;

// How the operands lie, in order of memory: blocks of channels have an axis of their own, the last.
struct ResizeOperands {
  Sizes from, to;
  Layout in, out;
};

// The axes that are resized, and how.
class ResizeProblem {
 public:
  // `x` is the operand of Resize's x, `y` that of its y.
  ResizeProblem(const Request& r, const Operand& x, const Operand& y, bool backward);

  std::vector<AxisMap> maps;
  ResizeOperands operands;

  // The first axis that is resized: those before it are outer ones.
  size_t lead() const { return maps.empty() ? operands.from.size() : maps.front().axis; }
  int64_t outer() const { return product_of(operands.from, 0, lead()); }
  int64_t plane_from() const { return product_of(operands.from, lead(), operands.from.size()); }
  int64_t plane_to() const { return product_of(operands.to, lead(), operands.to.size()); }
  static int64_t product_of(const Sizes& sizes, size_t begin, size_t end);

 private:
  ResizeOperands operands_of(const Request& r) const;
};

// Where each element of the result is one of x, of any dtype: rows of elements are copied.
std::unique_ptr<Kernel> resize_elements(const Request& r);

}  // namespace ort::cpu
