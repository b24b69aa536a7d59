// Parts of a tensor: Slice, Pad, Trilu and their gradients.
#include <algorithm>

#include "providers/reference/reference.h"

namespace ort::reference {
namespace {

// A strided part of a tensor: where it starts, and its steps and sizes along each axis.
struct Part {
  int64_t start = 0;
  Sizes strides, sizes;
};

// `starts`, `ends`, `axes` and `steps` are inputs; without ends (a gradient) the sizes are `given`.
Part part_of(const KernelCall& c, const Sizes& whole, size_t starts_input, size_t ends_input,
             size_t axes_input, const Sizes* given) {
  const std::vector<int64_t> starts = c.ints(starts_input);
  const std::vector<int64_t> ends = given ? starts : c.ints(ends_input);
  std::vector<int64_t> axes, steps(starts.size(), 1);
  for (size_t i = 0; i < starts.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  if (c.has(axes_input)) axes = c.ints(axes_input);
  if (c.has(axes_input + 1)) steps = c.ints(axes_input + 1);
  c.require(
      ends.size() == starts.size() && axes.size() == starts.size() && steps.size() == starts.size(),
      "starts has {} elements, ends {}, axes {}, steps {}", starts.size(), ends.size(), axes.size(),
      steps.size());
  const Sizes own = strides_of(whole);
  Part part{0, own, given ? *given : whole};
  for (size_t i = 0; i < starts.size(); ++i) {
    const size_t d = static_cast<size_t>(c.axis(axes[i], static_cast<int64_t>(whole.size())));
    const int64_t n = whole[d], step = steps[i];
    c.require(step != 0 && step != INT64_MIN, "step is {}", step);
    const auto clamp = [&](int64_t at) {
      if (at < 0) at += n;
      return step > 0 ? std::clamp<int64_t>(at, 0, n)
                      : std::clamp<int64_t>(at, -1, std::max<int64_t>(n - 1, -1));
    };
    const int64_t begin = clamp(starts[i]);  // backwards, from the first element at least
    const int64_t from = step > 0 ? begin : std::max(begin, std::min<int64_t>(0, n - 1)),
                  span = step > 0 ? clamp(ends[i]) - from : from - clamp(ends[i]);
    const int64_t stride = step > 0 ? step : -step;
    if (!given) part.sizes[d] = span <= 0 ? 0 : (span - 1) / stride + 1;
    const int64_t last = part.sizes[d] - 1;
    c.require(
        last < 0 || (from >= 0 && from < n && last <= (step > 0 ? n - 1 - from : from) / stride),
        "{} elements from {} by {} do not fit axis {} of {}", part.sizes[d], starts[i], step, d,
        whole);
    part.start += from * own[d];
    part.strides[d] = last > 0 ? step * own[d] : own[d];
  }
  return part;
}

void slice(const KernelCall& c) {
  const Part part = part_of(c, c.sizes(), 1, 2, 3, nullptr);
  c.expect(0, part.sizes);
  const Bytes move = bytes(c, 0);
  walk(part.sizes, {part.strides},
       [&](int64_t i, const Sizes& at) { move.copy(i, part.start + at[0]); });
}

void slice_grad(const KernelCall& c) {
  c.require(c.sizes().size() == c.out_sizes().size(), "dy has shape {}, x has shape {}", c.sizes(),
            c.out_sizes());
  const Part part = part_of(c, c.out_sizes(), 1, 1, 2, &c.sizes());
  for (size_t d = 0; d < part.sizes.size(); ++d)
    c.require(part.sizes[d] <= c.out_sizes()[d], "dy has shape {}, x has shape {}", c.sizes(),
              c.out_sizes());
  fill_zero(c, 0);
  const Bytes move = bytes(c, 0);
  walk(part.sizes, {part.strides},
       [&](int64_t i, const Sizes& at) { move.copy(part.start + at[0], i); });
}

// Where each element of a padded axis comes from: an index of the axis, or -1 for the pad value.
int64_t source(const KernelCall& c, const std::string& mode, int64_t at, int64_t n) {
  if (at >= 0 && at < n) return at;
  if (mode == "constant") return -1;
  c.require(n > 0, "mode {} cannot pad an empty axis", mode);
  if (mode == "edge") return std::clamp<int64_t>(at, 0, n - 1);
  if (mode == "wrap") return ((at % n) + n) % n;
  c.require(mode == "reflect", "mode is '{}', expected constant, reflect, edge or wrap", mode);
  if (n == 1) return 0;
  const int64_t period = 2 * (n - 1), folded = ((at % period) + period) % period;
  return folded < n ? folded : period - folded;
}

using Sources = std::vector<std::vector<int64_t>>;  // by axis, then by index of the padded axis

Sources sources_of(const KernelCall& c, const Sizes& whole, size_t axes_input) {
  const std::vector<int64_t> pads = c.ints(1);
  std::vector<int64_t> axes;
  for (size_t i = 0; i < pads.size() / 2; ++i) axes.push_back(static_cast<int64_t>(i));
  if (c.has(axes_input)) axes = c.ints(axes_input);
  c.require(pads.size() == 2 * axes.size(), "pads has {} elements for {} axes", pads.size(),
            axes.size());
  Sizes before(whole.size(), 0), after = before, sizes = whole;
  for (size_t i = 0; i < axes.size(); ++i) {
    const size_t d = static_cast<size_t>(c.axis(axes[i], static_cast<int64_t>(whole.size())));
    before[d] = pads[i];
    after[d] = pads[axes.size() + i];
    sizes[d] = checked_add(checked_add(whole[d], pads[i]), pads[axes.size() + i]);
    c.require(sizes[d] >= 0, "pads {} leave axis {} of {} with size {}", pads, d, whole, sizes[d]);
  }
  Sources sources(whole.size());
  // Of no elements an axis may still be as long as it likes.
  c.require(element_count(sizes) > 0 || *std::max_element(sizes.begin(), sizes.end()) < 1 << 20,
            "the result {} is empty, with an axis that is too long", sizes);
  for (size_t d = 0; d < whole.size(); ++d) {
    // Negative pads are cut off first: what is left is what is padded.
    const int64_t first = std::max<int64_t>(-before[d], 0), last = std::max<int64_t>(-after[d], 0);
    const int64_t n = std::max<int64_t>(whole[d] - first - last, 0);
    for (int64_t i = 0; i < sizes[d]; ++i) {
      const int64_t at = source(c, c.attrs().s("mode"), i - std::max<int64_t>(before[d], 0), n);
      sources[d].push_back(at < 0 ? -1 : first + at);
    }
  }
  return sources;
}

// f(i, offset in the whole or -1) over the padded elements.
template <class F>
void each_padded(const Sizes& whole, const Sources& sources, F f) {
  Sizes sizes;
  std::vector<Sizes> none;
  for (const auto& axis : sources) sizes.push_back(static_cast<int64_t>(axis.size()));
  const Sizes strides = strides_of(whole);
  Sizes index(sizes.size(), 0);
  for (int64_t i = 0; i < element_count(sizes); ++i) {
    int64_t offset = 0;
    for (size_t d = 0; d < sizes.size() && offset >= 0; ++d) {
      const int64_t at = sources[d][static_cast<size_t>(index[d])];
      offset = at < 0 ? -1 : offset + at * strides[d];
    }
    f(i, offset);
    for (size_t d = sizes.size(); d-- > 0 && ++index[d] == sizes[d];) index[d] = 0;
  }
}

Sizes sizes_of(const Sources& sources) {
  Sizes sizes;
  for (const auto& axis : sources) sizes.push_back(static_cast<int64_t>(axis.size()));
  return sizes;
}

void pad(const KernelCall& c) {
  const Sources sources = sources_of(c, c.sizes(), 3);
  c.expect(0, sizes_of(sources));
  const Bytes move = bytes(c, 0);
  c.require(!c.has(2) || element_count(c.sizes(2)) == 1, "value has shape {}, expected one element",
            c.has(2) ? c.sizes(2) : Sizes{});
  const std::vector<char> zero(move.size, 0);
  const Bytes value{c.has(2) ? static_cast<const char*>(c.data(2)) : zero.data(), move.to,
                    move.size};
  each_padded(c.sizes(), sources, [&](int64_t i, int64_t from) {
    if (from < 0)
      value.copy(i, 0);
    else
      move.copy(i, from);
  });
}

void pad_grad(const KernelCall& c) {
  const Sources sources = sources_of(c, c.out_sizes(), 2);
  c.require(sizes_of(sources) == c.sizes(), "dy has shape {}, expected {}", c.sizes(),
            sizes_of(sources));
  const In<double> dy = c.in<double>(0);
  std::vector<double> dx(static_cast<size_t>(element_count(c.out_sizes())), 0.0);
  each_padded(c.out_sizes(), sources, [&](int64_t i, int64_t from) {
    if (from >= 0) dx[static_cast<size_t>(from)] += dy[i];
  });
  c.write(0, dx);
}

void trilu(const KernelCall& c) {
  c.expect(0, c.sizes());
  c.require(c.rank() >= 2, "the input has shape {}, expected at least 2 axes", c.sizes());
  const int64_t k = c.has(1) ? c.number(1) : 0, rows = c.sizes()[c.sizes().size() - 2];
  const int64_t columns = c.sizes().back();
  const bool upper = c.attrs().i("upper") != 0;
  fill_zero(c, 0);
  const Bytes move = bytes(c, 0);
  for (int64_t i = 0; i < element_count(c.sizes()); ++i) {
    const int64_t row = i / columns % rows, column = i % columns;
    if (upper ? column - row >= k : column - row <= k) move.copy(i, i);
  }
}

}  // namespace

static void register_slice(KernelTable& table) {
  add(table, "Slice", kAny, slice);
  add(table, "ort::SliceGrad", kAny, slice_grad);
  add(table, "Pad", kAny, pad);
  add(table, "ort::PadGrad", kNumbers, pad_grad);
  add(table, "Trilu", kAny, trilu);
}

const Family<KernelTable> kSliceKernels("reference", "slice", register_slice);

}  // namespace ort::reference
