// What ONNX's Slice says of its operands, once for every provider.
#include "providers/cut.h"

#include <algorithm>

#include "csrc/core/error.h"

namespace ort {

Cut cut_of(const Sizes& whole, const Sizes& sizes, const std::vector<int64_t>& starts,
           const std::vector<int64_t>& axes, const std::vector<int64_t>& steps) {
  check((axes.empty() || axes.size() == starts.size()) &&
            (steps.empty() || steps.size() == starts.size()) && starts.size() <= whole.size(),
        "[Slice] starts has {} elements, axes {}, steps {}", starts.size(), axes.size(),
        steps.size());
  Cut cut{Sizes(whole.size(), 0), Sizes(whole.size(), 1)};
  const auto rank = static_cast<int64_t>(whole.size());
  for (size_t i = 0; i < starts.size(); ++i) {
    const int64_t axis = axes.empty() ? static_cast<int64_t>(i) : axes[i];
    check(axis >= -rank && axis < rank, "[Slice] axis {} does not exist in rank {}", axis, rank);
    const auto a = static_cast<size_t>(axis < 0 ? axis + rank : axis);
    const int64_t step = steps.empty() ? 1 : steps[i], size = whole[a];
    check(step != 0, "[Slice] a step is 0");
    const int64_t start = std::clamp<int64_t>(starts[i] < 0 ? starts[i] + size : starts[i], 0,
                                              step > 0 ? size : std::max<int64_t>(size - 1, 0));
    const int64_t last = sizes[a] - 1, room = step > 0 ? size - 1 - start : start;
    check(last <= 0 || last <= room / (step > 0 ? step : -std::max(step, -INT64_MAX)),
          "[Slice] {} elements from {} by {} do not fit an axis of {}", sizes[a], start, step,
          size);
    check(last != 0 || start < size, "[Slice] element {} of an axis of {}", start, size);
    cut.starts[a] = start;
    cut.steps[a] = last > 0 ? step : 1;
  }
  return cut;
}

}  // namespace ort
