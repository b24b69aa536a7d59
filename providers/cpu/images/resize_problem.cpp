// The maps of a Resize's axes, from the numbers of its node.
#include "providers/cpu/images/resize_problem.h"

#include "providers/cpu/channel_blocks.h"

namespace ort::cpu {
namespace {

std::vector<double> floats_of(const Request& r, size_t i) {
  std::vector<double> values;
  if (!r.has(i)) return values;
  const auto bytes = r.in(i).constant.hold();
  const Tensor list{r.in(i).dtype, r.sizes(i), const_cast<void*>(bytes.get()), bytes};
  for (int64_t k = 0; k < list.count(); ++k) values.push_back(element_as_double(list, k));
  return values;
}

}  // namespace

ResizeProblem::ResizeProblem(const Request& r, const Operand& x, const Operand& y, bool backward) {
  ResizeNumbers numbers{x.sizes, y.sizes, floats_of(r, kResizeRoi), floats_of(r, kResizeScales),
                        r.ints(kResizeSizes).value_or(std::vector<int64_t>{})};
  maps = resize_maps(r.attrs(), numbers, r.in(0).dtype);
  if (backward)
    for (AxisMap& map : maps) map = map.transposed();
  operands = operands_of(r);
}

int64_t ResizeProblem::product_of(const Sizes& sizes, size_t begin, size_t end) {
  int64_t all = 1;
  for (size_t i = begin; i < end; ++i) all *= sizes[i];
  return all;
}

ResizeOperands ResizeProblem::operands_of(const Request& r) const {
  ResizeOperands operands{r.sizes(0), r.out().sizes, {}, {}};
  const ChannelRows rows = channel_rows(r.in(0));
  const bool spatial = maps.empty() || maps.front().axis >= 2;
  const auto out = rows && spatial ? lying_as(r.in(0), r.out()) : std::nullopt;
  if (!out) return operands;
  operands.in = r.in(0).layout;
  operands.out = *out;
  for (Sizes* sizes : {&operands.from, &operands.to}) {
    (*sizes)[1] /= rows.lanes;
    sizes->push_back(rows.lanes);
  }
  return operands;
}

}  // namespace ort::cpu
