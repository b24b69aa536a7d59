// Elements chosen by their values.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "csrc/core/rows.h"
#include "providers/host_kernel.h"
#include "providers/kernel_table.h"

namespace ort {
namespace {

using Items = std::vector<Item>;

// Calls f(T*) with the elements as something that compares: halves as float32.
template <class F>
void with_elements(const Tensor& x, F&& f) {
  if (x.dtype == DType::string) {
    std::vector<std::string_view> texts;
    for (int64_t i = 0; i < x.count(); ++i) texts.push_back(text_of(x, i));
    return f(texts.data());
  }
  if (is_half(x.dtype)) {
    std::vector<float> wide;
    for (int64_t i = 0; i < x.count(); ++i)
      wide.push_back(static_cast<float>(element_as_double(x, i)));
    return f(wide.data());
  }
  dispatch(x.dtype, [&]<class T>() { f(x.as<T>()); });
}

Items non_zero(const HostCall& c) {
  const Tensor& x = c.tensor();
  std::vector<int64_t> found;
  with_elements(x, [&](const auto* elements) {
    using T = std::remove_cvref_t<decltype(*elements)>;
    if constexpr (!std::is_same_v<T, std::string_view>)
      for (int64_t i = 0; i < x.count(); ++i)
        if (elements[i] != T{}) found.push_back(i);
  });
  const int64_t rank = static_cast<int64_t>(x.sizes.size());
  const int64_t count = static_cast<int64_t>(found.size());
  Tensor result = Tensor::empty(DType::i64, {rank, count});
  for (int64_t n = 0; n < count; ++n) {
    int64_t rest = found[static_cast<size_t>(n)];
    for (int64_t axis = rank - 1; axis >= 0; --axis) {
      const int64_t size = x.sizes[static_cast<size_t>(axis)];
      result.as<int64_t>()[axis * count + n] = rest % size;
      rest /= size;
    }
  }
  return {result};
}

Tensor flat(Tensor x) {
  x.sizes = {x.count()};
  return x;
}

Items compress(const HostCall& c) {
  const bool whole = !c.attrs().has("axis");
  const Tensor x = whole ? flat(c.tensor()) : c.tensor();
  const int64_t axis = whole ? 0 : c.axis(c.attrs().i("axis"), x.sizes.size());
  const Tensor& condition = c.tensor(1);
  const int64_t size = x.sizes[static_cast<size_t>(axis)];
  std::vector<int64_t> taken;
  for (int64_t i = 0; i < condition.count(); ++i)
    if (condition.as<uint8_t>()[i]) taken.push_back(i);
  c.require(taken.empty() || taken.back() < size, "condition takes row {}, the axis has size {}",
            taken.empty() ? 0 : taken.back(), size);
  return {rows(x, axis, taken)};
}

Items repeated_positions(const HostCall& c) {
  const Tensor& repeats = c.tensor();
  int64_t total = 0;
  for (int64_t i = 0; i < repeats.count(); ++i) {
    const int64_t times = repeats.as<int64_t>()[i];
    c.require(times >= 0, "element {} of repeats is {}, expected none negative", i, times);
    total = checked_add(total, times);
  }
  Tensor result = Tensor::empty(DType::i64, {total});
  auto* next = result.as<int64_t>();
  for (int64_t i = 0; i < repeats.count(); ++i)
    next = std::fill_n(next, repeats.as<int64_t>()[i], i);
  return {result};
}

// NaNs are one value, after all others.
template <class T>
int compared(const T& a, const T& b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return static_cast<int>(std::isnan(a)) - std::isnan(b);
  }
  return a < b ? -1 : b < a ? 1 : 0;
}

struct Distinct {
  std::vector<int64_t> first, inverse, counts;
};

// Of `count` rows, which `compare` orders.
template <class Compare>
Distinct distinct_rows(int64_t count, bool sorted, Compare&& compare) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return compare(a, b) < 0; });
  Distinct found;
  std::vector<int64_t> group(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || compare(order[i - 1], order[i]) != 0) {
      found.first.push_back(order[i]);  // the first of its kind: the sort is stable
      found.counts.push_back(0);
    }
    ++found.counts.back();
    group[static_cast<size_t>(order[i])] = static_cast<int64_t>(found.first.size()) - 1;
  }
  if (!sorted) {
    std::vector<size_t> by_place(found.first.size());
    std::iota(by_place.begin(), by_place.end(), 0);
    std::sort(by_place.begin(), by_place.end(),
              [&](size_t a, size_t b) { return found.first[a] < found.first[b]; });
    Distinct placed;
    std::vector<int64_t> now(by_place.size());
    for (const size_t old : by_place) {
      now[old] = static_cast<int64_t>(placed.first.size());
      placed.first.push_back(found.first[old]);
      placed.counts.push_back(found.counts[old]);
    }
    for (int64_t& g : group) g = now[static_cast<size_t>(g)];
    found = std::move(placed);
  }
  found.inverse = std::move(group);
  return found;
}

Items unique(const HostCall& c) {
  const bool whole = !c.attrs().has("axis");
  const Tensor x = whole ? flat(c.tensor()) : c.tensor();
  const int64_t axis = whole ? 0 : c.axis(c.attrs().i("axis"), x.sizes.size());
  const int64_t size = x.sizes[static_cast<size_t>(axis)];
  int64_t outer = 1, inner = 1;
  for (size_t i = 0; i < x.sizes.size(); ++i)
    (static_cast<int64_t>(i) < axis ? outer : inner) *=
        static_cast<int64_t>(i) == axis ? 1 : x.sizes[i];
  Distinct found;
  with_elements(x, [&](const auto* elements) {
    found = distinct_rows(size, c.attrs().i("sorted") != 0, [&](int64_t a, int64_t b) {
      for (int64_t o = 0; o < outer; ++o)
        for (int64_t i = 0; i < inner; ++i) {
          const int order =
              compared(elements[(o * size + a) * inner + i], elements[(o * size + b) * inner + i]);
          if (order != 0) return order;
        }
      return 0;
    });
  });
  return {rows(x, axis, found.first), Tensor::of(found.first), Tensor::of(found.inverse),
          Tensor::of(found.counts)};
}

}  // namespace

static void register_host_select(HostTable& table) {
  table["NonZero"] = {kNumbers, non_zero};
  table["Compress"] = {kAny, compress};
  table["Unique"] = {kNumbers | bit(DType::string), unique};
  table["ort::RepeatedPositions"] = {kInt64, repeated_positions};
}

const Family<HostTable> kSelectKernels("host", "select", register_host_select);

}  // namespace ort
