// Ops that move data and compute nothing: Transpose, Expand, Tile, Pad, its gradient and Trilu.
// Those that cut and join are in slice_concat.cpp.
#include <algorithm>
#include <cstring>

#include "csrc/core/parallel.h"
#include "providers/cpu/movement/strided_copy.h"
#include "providers/cpu/onednn/onednn.h"
#include "providers/cpu/provider.h"

namespace ort::cpu {
namespace {

size_t width_of(const Request& r, size_t i = 0) {
  return size_of(r.in(i).dtype);
}

std::unique_ptr<Kernel> copy_kernel(const Request& r, Sizes sizes, Sizes from, Sizes to) {
  const StridedCopy copy(std::move(sizes), std::move(from), std::move(to), width_of(r));
  return make_kernel(r.node().op, [copy](const Args& args) { copy.run(args.in[0], args.out[0]); });
}

// A value that lies with its channels last has the bytes of the row-major one of that order.
std::unique_ptr<Kernel> transpose_to_last(const Request& r) {
  const size_t rank = r.sizes(0).size();
  if (!r.attrs().has("perm") || rank < 3 || rank > 5) return nullptr;
  std::vector<int64_t> to_last{0}, to_first{0, static_cast<int64_t>(rank) - 1};
  for (int64_t axis = 2; axis < static_cast<int64_t>(rank); ++axis) to_last.push_back(axis);
  for (int64_t axis = 1; axis + 1 < static_cast<int64_t>(rank); ++axis) to_first.push_back(axis);
  to_last.push_back(1);
  const auto perm = r.attrs().ints("perm");
  Layout in, out;
  if (perm == to_last && r.in(0).comes_blocked())
    in = channels_last(r.sizes(0), r.in(0).dtype);
  else if (perm == to_first && r.in(0).layout.is_plain() && r.out().any_layout)
    out = channels_last(r.out().sizes, r.out().dtype);
  if (in.is_plain() && out.is_plain()) return nullptr;
  const auto bytes = element_count(r.out().sizes) * static_cast<int64_t>(width_of(r));
  const auto move = [bytes](const Args& args) {
    if (args.in[0] == args.out[0]) return;
    parallel_for(bytes, bytes / 8, [&](int64_t begin, int64_t end, int) {
      std::memcpy(output<char>(args) + begin, input<char>(args, 0) + begin,
                  static_cast<size_t>(end - begin));
    });
  };
  return make_kernel("Transpose", move, {in}, {out}, 0, 0);
}

std::unique_ptr<Kernel> transpose(const Request& r) {
  const Sizes own = strides_of(r.sizes(0)), to = strides_of(r.out().sizes);
  Sizes from;
  for (size_t i = 0; i < own.size(); ++i) {
    const bool given = r.attrs().has("perm");
    const size_t axis = given ? static_cast<size_t>(r.attrs().ints("perm")[i]) : own.size() - 1 - i;
    from.push_back(own[axis]);
  }
  return copy_kernel(r, r.out().sizes, from, to);
}

// The same bytes; a truth is read as no other byte than 0 and 1.
std::unique_ptr<Kernel> bit_cast(const Request& r) {
  const auto bytes = element_count(r.sizes(0)) * static_cast<int64_t>(width_of(r));
  const bool truths = r.out().dtype == DType::boolean;
  const auto move = [=](const Args& args) {
    const auto* from = input<uint8_t>(args, 0);
    auto* to = output<uint8_t>(args);
    if (from == to && !truths) return;
    parallel_for(bytes, bytes / 8, [&](int64_t begin, int64_t end, int) {
      if (truths)
        for (int64_t i = begin; i < end; ++i) to[i] = from[i] != 0;
      else
        std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
    });
  };
  return make_kernel("BitCast", move, 0, 0);
}

std::unique_ptr<Kernel> expand(const Request& r) {
  const Sizes& out = r.out().sizes;
  return copy_kernel(r, out, broadcast_strides(r.sizes(0), out), strides_of(out));
}

std::unique_ptr<Kernel> tile(const Request& r) {
  const Sizes& in = r.sizes(0);
  if (element_count(r.out().sizes) == 0) return make_kernel("Tile", [](const Args&) {});
  const Sizes own = strides_of(in), whole = strides_of(r.out().sizes);
  Sizes sizes, from, to;
  for (size_t i = 0; i < in.size(); ++i) {
    sizes.insert(sizes.end(), {r.out().sizes[i] / in[i], in[i]});
    from.insert(from.end(), {0, own[i]});
    to.insert(to.end(), {whole[i] * in[i], whole[i]});
  }
  return copy_kernel(r, sizes, from, to);
}

// --- Pad ---

// For each axis of the padded tensor, which element of the original it shows; -1: the constant.
std::vector<std::vector<int64_t>> pad_sources(const Sizes& original, const Sizes& padded,
                                              const std::vector<int64_t>& pads,
                                              const std::vector<int64_t>& axes,
                                              const std::string& mode) {
  std::vector<std::vector<int64_t>> sources(padded.size());
  for (size_t axis = 0; axis < padded.size(); ++axis) {
    int64_t before = 0, after = 0;
    for (size_t i = 0; i < pads.size() / 2; ++i) {
      int64_t on = axes.empty() ? static_cast<int64_t>(i) : axes[i];
      if (on < 0) on += static_cast<int64_t>(padded.size());
      if (on != static_cast<int64_t>(axis)) continue;
      before = pads[i];
      after = pads[pads.size() / 2 + i];
    }
    // Negative pads are cut off first: what is left is what is padded.
    const int64_t first = std::max<int64_t>(-before, 0);
    const int64_t n = std::max<int64_t>(original[axis] - first - std::max<int64_t>(-after, 0), 0);
    check(n > 0 || mode == "constant" || padded[axis] == 0,
          "[Pad] axis {} of {} has nothing left that mode '{}' could pad with", axis, original,
          mode);
    for (int64_t i = 0; i < padded[axis]; ++i) {
      int64_t at = i - std::max<int64_t>(before, 0);
      if (at < 0 || at >= n) {
        if (mode == "edge") at = std::clamp<int64_t>(at, 0, n - 1);
        if (mode == "wrap") at = (at % n + n) % n;
        if (mode == "reflect") {
          const int64_t period = std::max<int64_t>(2 * (n - 1), 1);
          at = (at % period + period) % period;
          if (at >= n) at = period - at;
        }
      }
      const bool is_value = at < 0 || at >= n;
      sources[axis].push_back(is_value ? -1 : first + at);
    }
  }
  return sources;
}

// Calls f(padded row offset, original row offset or -1) for every row of the padded tensor.
template <class F>
void each_padded_row(const Sizes& original, const Sizes& padded,
                     const std::vector<std::vector<int64_t>>& sources, F f) {
  const Sizes strides = strides_of(original);
  const size_t last = padded.size() - 1;
  const int64_t rows = padded[last] == 0 ? 0 : element_count(padded) / padded[last];
  for (int64_t row = 0; row < rows; ++row) {
    int64_t rest = row, from = 0;
    bool inside = true;
    for (size_t axis = last; axis-- > 0; rest /= padded[axis]) {
      const int64_t at = sources[axis][static_cast<size_t>(rest % padded[axis])];
      inside = inside && at >= 0;
      from += at * strides[axis];
    }
    f(row * padded[last], inside ? from : int64_t{-1});
  }
}

// The most places in a row that show elements in a row.
std::pair<int64_t, int64_t> longest_run(const std::vector<int64_t>& sources) {
  std::pair<int64_t, int64_t> longest{0, 0};
  const auto count = static_cast<int64_t>(sources.size());
  for (int64_t begin = 0, end; begin < count; begin = end) {
    const int64_t* at = sources.data() + begin;
    for (end = begin + 1; *at >= 0 && end < count && at[end - begin] == *at + end - begin;) ++end;
    if (*at >= 0 && end - begin > longest.second - longest.first) longest = {begin, end};
  }
  return longest;
}

template <class T>
void pad(const Sizes& original, const Sizes& padded,
         const std::vector<std::vector<int64_t>>& sources, const T* x, T value, T* y) {
  const std::vector<int64_t>& last = sources.back();
  const auto [begin, end] = longest_run(last);
  const auto count = static_cast<int64_t>(last.size());
  each_padded_row(original, padded, sources, [&](int64_t to, int64_t from) {
    if (from < 0) {
      std::fill_n(y + to, count, value);
      return;
    }
    const auto one = [&](int64_t i) {
      const int64_t at = last[static_cast<size_t>(i)];
      y[to + i] = at >= 0 ? x[from + at] : value;
    };
    for (int64_t i = 0; i < begin; ++i) one(i);
    if (begin < end)
      std::memcpy(y + to + begin, x + from + last[static_cast<size_t>(begin)],
                  static_cast<size_t>(end - begin) * sizeof(T));
    for (int64_t i = end; i < count; ++i) one(i);
  });
}

std::unique_ptr<Kernel> pad_kernel(const Request& r) {
  const Sizes original = r.sizes(0), padded = r.out().sizes;
  const std::string mode = r.attrs().s("mode", "constant");
  const Operand pads = r.in(1), axes = r.has(3) ? r.in(3) : Operand{};
  const size_t bytes = width_of(r);
  const bool value = r.has(2);
  if (original.empty()) return copy_kernel(r, {}, {}, {});
  // Of no elements an axis may still be as long as it likes.
  if (element_count(padded) == 0) return make_kernel("Pad", [](const Args&) {});
  return make_kernel("Pad", [=](const Args& args) {
    const auto sources =
        pad_sources(original, padded, read_ints(pads, args.in[1]),
                    axes.present ? read_ints(axes, args.in[3]) : std::vector<int64_t>{}, mode);
    with_word(bytes, [&]<class T>() {
      pad(original, padded, sources, input<T>(args, 0), value ? *input<T>(args, 2) : T{},
          output<T>(args));
    });
  });
}

template <class T>
void add_back(const Sizes& original, const Sizes& padded,
              const std::vector<std::vector<int64_t>>& sources, const T* dy, T* dx) {
  const std::vector<int64_t>& last = sources.back();
  each_padded_row(original, padded, sources, [&](int64_t at, int64_t to) {
    for (size_t i = 0; i < last.size(); ++i)
      if (to >= 0 && last[i] >= 0) dx[to + last[i]] += dy[at + static_cast<int64_t>(i)];
  });
}

std::unique_ptr<Kernel> pad_grad(const Request& r) {
  const Sizes padded = r.sizes(0), original = r.out().sizes;
  const std::string mode = r.attrs().s("mode", "reflect");
  const Operand pads = r.in(1), axes = r.has(2) ? r.in(2) : Operand{};
  const size_t bytes = static_cast<size_t>(element_count(original)) * width_of(r);
  const bool wide = r.in(0).dtype == DType::f64;
  if (original.empty()) return copy_kernel(r, {}, {}, {});
  if (element_count(padded) == 0)
    return make_kernel("PadGrad", [bytes](const Args& args) { clear(args.out[0], bytes); });
  return make_kernel("PadGrad", [=](const Args& args) {
    const auto sources =
        pad_sources(original, padded, read_ints(pads, args.in[1]),
                    axes.present ? read_ints(axes, args.in[2]) : std::vector<int64_t>{}, mode);
    clear(args.out[0], bytes);
    wide ? add_back(original, padded, sources, input<double>(args, 0), output<double>(args))
         : add_back(original, padded, sources, input<float>(args, 0), output<float>(args));
  });
}

std::unique_ptr<Kernel> trilu(const Request& r) {
  const Sizes sizes = r.sizes(0);
  const int64_t cols = sizes.back(), rows = sizes[sizes.size() - 2];
  const int64_t all = cols * rows == 0 ? 0 : element_count(sizes) / cols;
  const bool upper = r.attrs().i("upper", 1) != 0, has_k = r.has(1);
  const size_t bytes = width_of(r);
  return make_kernel("Trilu", [=](const Args& args) {
    const int64_t k = has_k ? std::clamp(*input<int64_t>(args, 1), -rows - 1, cols + 1) : 0;
    parallel_for(all, all * cols, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        // Columns from `edge` on are the upper part.
        const int64_t edge = std::clamp<int64_t>(row % rows + k + (upper ? 0 : 1), 0, cols);
        const int64_t from = upper ? edge : 0, to = upper ? cols : edge;
        const size_t start = static_cast<size_t>(row * cols) * bytes;
        char* y = output<char>(args) + start;
        std::memset(y, 0, static_cast<size_t>(cols) * bytes);
        const size_t skip = static_cast<size_t>(from) * bytes;
        std::memcpy(y + skip, input<char>(args, 0) + start + skip,
                    static_cast<size_t>(to - from) * bytes);
      }
    });
  });
}

}  // namespace

static void register_movement(KernelTable& table) {
  table.op("Transpose")
      .take_layouts()
      .add("channels last", kAny, transpose_to_last)
      .add("copy", kAny, transpose);
  table.op("BitCast").add("copy", kAny, bit_cast);
  table.op("Expand").add("copy", kAny, expand);
  table.op("Tile").add("copy", kAny, tile);
  table.op("Pad").add("copy", kAny, pad_kernel);
  table.op("ort::PadGrad").add("plain", kF32 | kF64, pad_grad);
  table.op("Trilu").add("copy", kAny, trilu);
}

const Family<KernelTable> kMovementKernels("cpu", "movement", register_movement);

}  // namespace ort::cpu
