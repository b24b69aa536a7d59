// Ranges of floating numbers, whose bounds only a run tells.
#include <cmath>

#include "providers/host_kernel.h"
#include "providers/kernel_table.h"

namespace ort {
namespace {

// Counted and computed in float64, and rounded once.
std::vector<Item> range(const HostCall& c) {
  const auto one = [&](size_t i) {
    c.require(c.tensor(i).count() == 1, "input {} has shape {}, expected one element", i,
              c.tensor(i).sizes);
    return element_as_double(c.tensor(i), 0);
  };
  const double start = one(0), limit = one(1), delta = one(2);
  c.require(delta != 0, "delta is 0");
  const double steps = std::ceil((limit - start) / delta);
  c.require(steps < 0x1p62, "range from {} to {} by {} has no end", start, limit, delta);
  const int64_t count = steps >= 1 ? static_cast<int64_t>(steps) : 0;
  Tensor result = Tensor::empty(c.tensor(0).dtype, {count});
  for (int64_t i = 0; i < count; ++i)
    set_element(result, i, start + static_cast<double>(i) * delta);
  return {result};
}

}  // namespace

static void register_host_range(HostTable& table) {
  table["Range"] = {kNumeric, range};
}

const Family<HostTable> kRangeKernels("host", "range", register_host_range);

}  // namespace ort
