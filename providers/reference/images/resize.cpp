// Resize and its gradient: one axis after the other, each by its weights.
#include "providers/resize.h"

#include <algorithm>

#include "providers/reference/images/saturate.h"
#include "providers/reference/reference.h"

namespace ort::reference {
namespace {

std::vector<AxisMap> maps_of(const KernelCall& c, const Sizes& x, const Sizes& y) {
  ResizeNumbers numbers{x, y, {}, {}, {}};
  if (c.has(1)) numbers.roi = c.all<double>(1);
  if (c.has(2)) numbers.scales = c.all<double>(2);
  if (c.has(3)) numbers.sizes = c.ints(3);
  return resize_maps(c.attrs(), numbers, c.dtype());
}

struct Values {
  Sizes sizes;
  std::vector<double> all;
};

void weigh(Values& x, const AxisMap& map) {
  const Split split = split_at(x.sizes, static_cast<int64_t>(map.axis));
  Values y{x.sizes, {}};
  y.sizes[map.axis] = map.out();
  for (int64_t outer = 0; outer < split.outer; ++outer)
    for (size_t o = 0; o < map.first.size(); ++o)
      for (int64_t inner = 0; inner < split.inner; ++inner) {
        double sum = 0;
        int64_t from = outer * split.size + map.first[o];
        for (int64_t k = map.begin[o]; k < map.begin[o + 1]; ++k, ++from)
          sum += map.weights[static_cast<size_t>(k)] *
                 x.all[static_cast<size_t>(from * split.inner + inner)];
        y.all.push_back(sum);
      }
  x = std::move(y);
}

void extrapolate(Values& y, const AxisMap& map, double value) {
  const Split split = split_at(y.sizes, static_cast<int64_t>(map.axis));
  for (int64_t outer = 0; outer < split.outer; ++outer)
    for (const int64_t o : map.outside)
      std::fill_n(y.all.begin() + (outer * split.size + o) * split.inner, split.inner, value);
}

void resize_numbers(const KernelCall& c) {
  const auto maps = maps_of(c, c.sizes(), c.out_sizes());
  Values values{c.sizes(), c.all<double>(0)};
  for (const AxisMap& map : maps) weigh(values, map);
  for (const AxisMap& map : maps) extrapolate(values, map, c.attrs().f("extrapolation_value"));
  saturate(values.all, c.dtype());
  c.write(0, values.all);
}

void resize_elements(const KernelCall& c) {
  const Sizes strides = strides_of(c.sizes());
  std::vector<std::vector<int64_t>> places;  // by axis and index, in steps of that axis
  for (const int64_t size : c.out_sizes()) {
    places.emplace_back();
    for (int64_t i = 0; i < size; ++i) places.back().push_back(i);
  }
  for (AxisMap& map : maps_of(c, c.sizes(), c.out_sizes())) places[map.axis] = map.first;
  const Bytes move = bytes(c, 0);
  Sizes index(places.size(), 0);
  for (int64_t i = 0; i < element_count(c.out_sizes()); ++i) {
    int64_t from = 0;
    for (size_t d = 0; d < index.size(); ++d)
      from += places[d][static_cast<size_t>(index[d])] * strides[d];
    move.copy(i, from);
    for (size_t d = index.size(); d-- > 0 && ++index[d] == c.out_sizes()[d];) index[d] = 0;
  }
}

void resize_grad(const KernelCall& c) {
  Values dy{c.sizes(), c.all<double>(0)};
  for (const AxisMap& map : maps_of(c, c.out_sizes(), c.sizes())) weigh(dy, map.transposed());
  c.write(0, dy.all);
}

Verdict can_resize(const Node& node) {
  return require(resize_moves(node.attrs), "it computes numbers");
}

}  // namespace

static void register_resize(KernelTable& table) {
  add(table, "Resize", kAny, resize_elements, can_resize);
  add(table, "Resize", kNumbers, resize_numbers);
  add(table, "ort::ResizeGrad", kNumbers, resize_grad);
}

const Family<KernelTable> kResizeKernels("reference", "resize", register_resize);

}  // namespace ort::reference
