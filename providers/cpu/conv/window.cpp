// Reads windows from attributes.
#include "providers/cpu/conv/window.h"

#include <algorithm>

namespace ort::cpu {
namespace {

Sizes ints_or(const Attrs& attrs, std::string_view name, size_t count, int64_t otherwise) {
  if (attrs.has(name) && !attrs.ints(name).empty()) return attrs.ints(name);
  return Sizes(count, otherwise);
}

}  // namespace

Window window_of(const Request& r, const Sizes& wide, const Sizes& narrow, const Sizes& kernel) {
  const size_t n = wide.size() - 2;
  Window w;
  w.kernel = kernel;
  w.strides = ints_or(r.attrs(), "strides", n, 1);
  w.dilations = ints_or(r.attrs(), "dilations", n, 1);
  const Sizes pads = ints_or(r.attrs(), "pads", 2 * n, 0);
  const std::string auto_pad = r.attrs().s("auto_pad", "NOTSET");
  // What the windows need beyond the input decides, where pads are not given as numbers.
  const bool same = auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
  const bool from_shape = r.attrs().has("output_shape");
  for (size_t i = 0; i < n; ++i) {
    if (!same && !from_shape) {
      w.before.push_back(auto_pad == "VALID" ? 0 : pads[i]);
      w.after.push_back(auto_pad == "VALID" ? 0 : pads[n + i]);
      continue;
    }
    const Sizes extra = ints_or(r.attrs(), "output_padding", n, 0);
    const int64_t needed = (narrow[2 + i] - 1) * w.strides[i] + w.reach(i) + extra[i] - wide[2 + i];
    const int64_t total = std::max<int64_t>(0, needed);
    const bool more_after = auto_pad != "SAME_LOWER" && (same || !from_shape);
    w.before.push_back(more_after ? total / 2 : total - total / 2);
    w.after.push_back(total - w.before.back());
  }
  return w;
}

}  // namespace ort::cpu
