// Ops that move data and compute nothing: Transpose, Expand, Tile, Slice and its gradient, Concat
// and Split.
#include <algorithm>

#include "providers/cuda/box.h"
#include "providers/cuda/late_kernel.h"
#include "providers/cut.h"

namespace ort::cuda {
namespace {

size_t width(const Request& r) {
  return size_of(r.in(0).dtype);
}

std::unique_ptr<Kernel> copy_kernel(const Request& r, Sizes sizes, Sizes from, Sizes to) {
  const BoxCopy copy(gpu_of(r), std::move(sizes), std::move(from), std::move(to), width(r));
  return make_late_kernel(
      r.node().op, [copy](const Args& args) { copy.run(args.in[0], args.out[0], args.stream); });
}

std::unique_ptr<Kernel> transpose(const Request& r) {
  const Sizes own = strides_of(r.sizes(0));
  Sizes from;
  for (size_t i = 0; i < own.size(); ++i) {
    const bool given = r.attrs().has("perm");
    from.push_back(
        own[given ? static_cast<size_t>(r.attrs().ints("perm")[i]) : own.size() - 1 - i]);
  }
  return copy_kernel(r, r.out().sizes, from, strides_of(r.out().sizes));
}

std::unique_ptr<Kernel> expand(const Request& r) {
  const Sizes& out = r.out().sizes;
  return copy_kernel(r, out, broadcast_strides(r.sizes(0), out), strides_of(out));
}

std::unique_ptr<Kernel> tile(const Request& r) {
  const Sizes& in = r.sizes(0);
  if (element_count(r.out().sizes) == 0) return make_late_kernel("Tile", [](const Args&) {});
  const Sizes own = strides_of(in), whole = strides_of(r.out().sizes);
  Sizes sizes, from, to;
  for (size_t i = 0; i < in.size(); ++i) {
    sizes.insert(sizes.end(), {r.out().sizes[i] / in[i], in[i]});
    from.insert(from.end(), {0, own[i]});
    to.insert(to.end(), {whole[i] * in[i], whole[i]});
  }
  return copy_kernel(r, sizes, from, to);
}

// --- Slice and its gradient ---

// Of operands starts, axes and steps, which the host reads when the kernel runs.
class CutReader {
 public:
  CutReader(const Request& r, size_t starts, size_t axes, size_t steps, Sizes whole, Sizes sizes)
      : whole_(std::move(whole)), sizes_(std::move(sizes)), index_{starts, axes, steps} {
    if (sizes_.size() != whole_.size()) r.refuse("a slice of shape {} of {}", sizes_, whole_);
    for (int i = 0; i < 3; ++i)
      if (r.has(index_[i])) operands_[i] = r.in(index_[i]);
  }
  Cut read(const Args& args) const {
    std::vector<int64_t> values[3];
    for (int i = 0; i < 3; ++i)
      if (operands_[i].present) values[i] = read_ints(operands_[i], args.in[index_[i]]);
    return cut_of(whole_, sizes_, values[0], values[1], values[2]);
  }

 private:
  Sizes whole_, sizes_;
  size_t index_[3];
  Operand operands_[3];
};

std::unique_ptr<Kernel> slice(const Request& r) {
  const Sizes sizes = r.out().sizes, own = strides_of(r.sizes(0));
  const CutReader reader(r, 1, 3, 4, r.sizes(0), sizes);
  const auto bytes = static_cast<int64_t>(width(r));
  Gpu* gpu = &gpu_of(r);
  return make_late_kernel("Slice", [=](const Args& args) {
    const Cut cut = reader.read(args);
    BoxCopy(*gpu, sizes, cut.over(own), strides_of(sizes), static_cast<size_t>(bytes))
        .run(input<char>(args, 0) + cut.offset(own) * bytes, args.out[0], args.stream);
  });
}

std::unique_ptr<Kernel> slice_grad(const Request& r) {
  const Sizes whole = r.out().sizes, sizes = r.sizes(0), own = strides_of(whole);
  const CutReader reader(r, 1, 2, 3, whole, sizes);
  const auto bytes = static_cast<int64_t>(width(r));
  Gpu* gpu = &gpu_of(r);
  return make_late_kernel("SliceGrad", [=](const Args& args) {
    const auto all = static_cast<size_t>(element_count(whole) * bytes);
    if (all > 0) gpu->memory().zero(args.out[0], all, args.stream);
    const Cut cut = reader.read(args);
    BoxCopy(*gpu, sizes, strides_of(sizes), cut.over(own), static_cast<size_t>(bytes))
        .run(args.in[0], output<char>(args) + cut.offset(own) * bytes, args.stream);
  });
}

// --- Concat and Split: each part is one band of the whole ---

struct Band {
  size_t part;
  int64_t offset;  // of its first byte in the whole
  BoxCopy copy;
};

std::unique_ptr<Kernel> concat(const Request& r) {
  const Sizes whole = r.out().sizes, outer = strides_of(whole);
  const auto axis = static_cast<size_t>(r.axis("axis", static_cast<int64_t>(whole.size())));
  std::vector<Band> bands;
  int64_t at = 0;
  for (size_t i = 0; i < r.inputs(); ++i) {
    const Sizes& part = r.sizes(i);
    const int64_t offset = at * outer[axis] * static_cast<int64_t>(width(r));
    bands.push_back({i, offset, BoxCopy(gpu_of(r), part, strides_of(part), outer, width(r))});
    at += part[axis];
  }
  if (at != whole[axis]) r.refuse("parts have {} in axis {}, expected {}", at, axis, whole[axis]);
  return make_late_kernel("Concat", [bands](const Args& args) {
    for (const Band& b : bands)
      b.copy.run(args.in[b.part], output<char>(args) + b.offset, args.stream);
  });
}

std::unique_ptr<Kernel> split(const Request& r) {
  const Sizes whole = r.sizes(0), outer = strides_of(whole);
  const auto axis = static_cast<size_t>(r.axis("axis", static_cast<int64_t>(whole.size())));
  const auto sizes = r.ints(1);
  const auto count = static_cast<int64_t>(r.outputs());
  const int64_t chunk = (whole[axis] + count - 1) / count;
  std::vector<Band> bands;
  int64_t at = 0;
  for (size_t i = 0; i < r.outputs(); ++i) {
    if (r.wants(i)) {
      const Sizes& part = r.out(i).sizes;
      const int64_t offset = at * outer[axis] * static_cast<int64_t>(width(r));
      bands.push_back(
          {i, offset, BoxCopy(gpu_of(r.in(0).device), part, outer, strides_of(part), width(r))});
    }
    at += sizes ? (*sizes)[i] : r.wants(i) ? r.out(i).sizes[axis] : chunk;
  }
  return make_late_kernel("Split", [bands](const Args& args) {
    for (const Band& b : bands)
      b.copy.run(input<char>(args, 0) + b.offset, args.out[b.part], args.stream);
  });
}

Verdict known_split(const Node& node) {
  if (node.has_input(1) && !node.graph->contents(node.in[1]) && !constant_of(node.input(1)))
    return Verdict::no("the sizes of the parts are known only at run time");
  return Verdict::yes();
}

}  // namespace

static void register_movement(KernelTable& table) {
  table.op("Transpose").add("copy", kAny, transpose);
  table.op("Expand").add("copy", kAny, expand);
  table.op("Tile").add("copy", kAny, tile);
  table.op("Slice").add("copy", kAny, slice);
  table.op("ort::SliceGrad").add("copy", kAny, slice_grad);
  table.op("Concat").add("copy", kAny, concat);
  table.op("Split").add("copy", kAny, known_split, split);
}

const Family<KernelTable> kMovementKernels("cuda", "movement", register_movement);

}  // namespace ort::cuda
