// The arithmetic of padding, strides and dilations.
#include "providers/reference/window.h"

#include <algorithm>

namespace ort::reference {
namespace {

Sizes ints_or(const Attrs& attrs, std::string_view name, size_t count, int64_t otherwise) {
  if (attrs.has(name) && !attrs.ints(name).empty()) return attrs.ints(name);
  return Sizes(count, otherwise);
}

}  // namespace

Window window_of(const KernelCall& c, Sizes kernel, const Sizes& in, const Sizes& out) {
  const size_t n = kernel.size();
  c.require(in.size() == n && out.size() == n, "{} spatial axes, kernel has {}", in.size(), n);
  const Sizes pads = ints_or(c.attrs(), "pads", 2 * n, 0);
  Window w{std::move(kernel), ints_or(c.attrs(), "strides", n, 1),
           ints_or(c.attrs(), "dilations", n, 1),
           Sizes(pads.begin(), pads.begin() + static_cast<int64_t>(n)),
           Sizes(pads.begin() + static_cast<int64_t>(n), pads.end())};
  c.require(w.strides.size() == n && w.dilations.size() == n && w.after.size() == n,
            "strides {}, dilations {} and pads {} do not fit {} spatial axes", w.strides,
            w.dilations, pads, n);
  const std::string& mode = c.attrs().s("auto_pad");
  if (mode == "NOTSET") return w;
  for (size_t d = 0; d < n; ++d) {
    const int64_t reach = w.dilations[d] * (w.kernel[d] - 1) + 1;
    const int64_t total =
        mode == "VALID" ? 0 : std::max<int64_t>(0, (out[d] - 1) * w.strides[d] + reach - in[d]);
    w.before[d] = mode == "SAME_LOWER" ? total - total / 2 : total / 2;
    w.after[d] = total - w.before[d];
  }
  return w;
}

Taps taps_of(const Window& w, const Sizes& in, const Sizes& out) {
  Taps taps{element_count(in), element_count(out), element_count(w.kernel), {}, {}};
  constexpr int64_t kMostTaps = int64_t{1} << 26;
  check(checked_mul(taps.outputs, taps.kernels) <= kMostTaps,
        "{} windows of {} elements, the reference provider takes at most {} together", taps.outputs,
        taps.kernels, kMostTaps);
  const Sizes strides = strides_of(in), out_strides = strides_of(out),
              kernel_strides = strides_of(w.kernel);
  for (int64_t o = 0; o < taps.outputs; ++o) {
    int64_t covered = 0;
    for (int64_t k = 0; k < taps.kernels; ++k) {
      int64_t offset = 0;
      bool inside = true, padded = true;
      for (size_t d = 0; d < in.size(); ++d) {
        const int64_t at = o / out_strides[d] % out[d] * w.strides[d] +
                           k / kernel_strides[d] % w.kernel[d] * w.dilations[d] - w.before[d];
        inside = inside && at >= 0 && at < in[d];
        padded = padded && at < in[d] + w.after[d];
        offset += at * strides[d];
      }
      taps.at.push_back(inside ? offset : -1);
      covered += padded;
    }
    taps.covered.push_back(covered);
  }
  return taps;
}

}  // namespace ort::reference
