// Ops that cut a part out of a value or join parts: Slice and its gradient, Concat and Split. Where
// values lie with their channels last, or as blocks of them and parts are whole blocks, boxes of
// that order are copied.
#include <algorithm>

#include "providers/cpu/channel_blocks.h"
#include "providers/cpu/movement/strided_copy.h"
#include "providers/cpu/provider.h"
#include "providers/cut.h"

namespace ort::cpu {
namespace {

size_t item_bytes(const Request& r) {
  return size_of(r.in(0).dtype);
}

// Sizes in the order of memory: a row of channels has an axis of its own, the last.
Sizes in_memory(Sizes sizes, ChannelRows rows) {
  if (!rows) return sizes;
  const int64_t lanes = rows.last ? sizes[1] : rows.lanes;
  sizes[1] /= lanes;
  sizes.push_back(lanes);
  return sizes;
}
// Where an axis is cut there: channels in their row where it has all of them.
size_t axis_in_memory(size_t axis, size_t rank, ChannelRows rows) {
  return axis == 1 && rows.last ? rank : axis;
}

// --- Slice and its gradient ---

// Operands of starts, axes and steps, of which the last two may be absent.
class CutReader {
 public:
  CutReader(const Request& r, size_t starts, size_t axes, size_t steps, Sizes whole, Sizes sizes)
      : whole_(std::move(whole)), sizes_(std::move(sizes)), index_{starts, axes, steps} {
    bool fits = sizes_.size() == whole_.size();
    for (size_t i = 0; fits && i < sizes_.size(); ++i) fits = sizes_[i] <= whole_[i];
    if (!fits) r.refuse("a slice of shape {} of {}", sizes_, whole_);
    for (int i = 0; i < 3; ++i)
      if (r.has(index_[i])) operand_[i] = r.in(index_[i]);
  }
  Cut read(const Args& args) const {
    return read_from([&](int i) -> const void* { return args.in[index_[i]]; });
  }
  // In the order of memory, where it is known at preparation and is one of whole blocks.
  std::optional<Cut> read_rows(ChannelRows rows) const {
    for (const Operand& operand : operand_)
      if (operand.present && !operand.constant) return std::nullopt;
    std::shared_ptr<const void> held[3];
    for (int i = 0; i < 3; ++i)
      if (operand_[i].present) held[i] = operand_[i].constant.hold();
    Cut cut = read_from([&](int i) { return held[i].get(); });
    cut.starts.push_back(0);
    cut.steps.push_back(1);
    if (rows.last) {
      std::swap(cut.starts[1], cut.starts.back());
      std::swap(cut.steps[1], cut.steps.back());
      return cut;
    }
    const bool whole = cut.starts[1] % rows.lanes == 0 && sizes_[1] % rows.lanes == 0;
    if (!whole || cut.steps[1] != 1) return std::nullopt;
    cut.starts[1] /= rows.lanes;
    return cut;
  }

 private:
  template <class F>
  Cut read_from(F data) const {
    std::vector<int64_t> values[3];
    for (int i = 0; i < 3; ++i)
      if (operand_[i].present) values[i] = read_ints(operand_[i], data(i));
    return cut_of(whole_, sizes_, values[0], values[1], values[2]);
  }

  Sizes whole_, sizes_;
  size_t index_[3];
  Operand operand_[3];
};

// Null where x comes row-major, or what is made has to be.
std::unique_ptr<Kernel> slice_rows(const Request& r, const CutReader& reader) {
  const ChannelRows rows = channel_rows(r.in(0));
  const auto layout = lying_as(r.in(0), r.out());
  const auto cut = layout ? reader.read_rows(rows) : std::nullopt;
  if (!cut) return nullptr;
  const Sizes own = strides_of(in_memory(r.sizes(0), rows));
  const Sizes sizes = in_memory(r.out().sizes, rows);
  const int64_t offset = cut->offset(own) * static_cast<int64_t>(item_bytes(r));
  const StridedCopy copy(sizes, cut->over(own), strides_of(sizes), item_bytes(r));
  const auto run = [=](const Args& args) { copy.run(input<char>(args, 0) + offset, args.out[0]); };
  return make_kernel("Slice", run, {r.in(0).layout}, {*layout});
}

std::unique_ptr<Kernel> slice(const Request& r) {
  const Sizes sizes = r.out().sizes, own = strides_of(r.sizes(0));
  const CutReader reader(r, 1, 3, 4, r.sizes(0), sizes);
  if (auto kernel = slice_rows(r, reader)) return kernel;
  const size_t bytes = item_bytes(r);
  return make_kernel("Slice", [=](const Args& args) {
    const Cut cut = reader.read(args);
    const char* from = input<char>(args, 0) + cut.offset(own) * static_cast<int64_t>(bytes);
    StridedCopy(sizes, cut.over(own), strides_of(sizes), bytes).run(from, args.out[0]);
  });
}

std::unique_ptr<Kernel> slice_grad_rows(const Request& r, const CutReader& reader) {
  const ChannelRows rows = channel_rows(r.in(0));
  const auto layout = lying_as(r.in(0), r.out());
  const auto cut = layout ? reader.read_rows(rows) : std::nullopt;
  if (!cut) return nullptr;
  const Sizes own = strides_of(in_memory(r.out().sizes, rows));
  const Sizes sizes = in_memory(r.sizes(0), rows);
  const int64_t offset = cut->offset(own) * static_cast<int64_t>(item_bytes(r));
  const size_t whole = static_cast<size_t>(element_count(r.out().sizes)) * item_bytes(r);
  const StridedCopy copy(sizes, strides_of(sizes), cut->over(own), item_bytes(r));
  const auto run = [=](const Args& args) {
    clear(args.out[0], whole);
    copy.run(args.in[0], output<char>(args) + offset);
  };
  return make_kernel("SliceGrad", run, {r.in(0).layout}, {*layout});
}

std::unique_ptr<Kernel> slice_grad(const Request& r) {
  const Sizes whole = r.out().sizes, sizes = r.sizes(0), own = strides_of(whole);
  const CutReader reader(r, 1, 2, 3, whole, sizes);
  if (auto kernel = slice_grad_rows(r, reader)) return kernel;
  const size_t bytes = item_bytes(r);
  return make_kernel("SliceGrad", [=](const Args& args) {
    clear(args.out[0], static_cast<size_t>(element_count(whole)) * bytes);
    const Cut cut = reader.read(args);
    char* to = output<char>(args) + cut.offset(own) * static_cast<int64_t>(bytes);
    StridedCopy(sizes, strides_of(sizes), cut.over(own), bytes).run(args.in[0], to);
  });
}

// --- Concat and Split: each part is one band of the whole ---

// How the whole and its parts lie.
struct Lie {
  ChannelRows rows{};
  Layout whole{};
  std::vector<Layout> parts{};
};

// All as `like`, which does not come row-major; else row-major.
Lie lie_as(const Operand& like, const Operand& whole, const std::vector<Operand>& parts) {
  Lie lie{channel_rows(like), {}, {}};
  const auto own = lying_as(like, whole);
  if (!own) return {};
  lie.whole = *own;
  for (const Operand& part : parts) {
    const auto layout = part.present ? lying_as(like, part) : Layout();
    if (!layout) return {};
    lie.parts.push_back(*layout);
  }
  return lie;
}

// One that at least half of what comes lies as: the rest is reordered.
const Operand* most_alike(const std::vector<Operand>& parts) {
  const Operand* like = nullptr;
  int64_t alike = 0, all = 0;
  for (const Operand& part : parts) {
    const ChannelRows rows = channel_rows(part);
    const int64_t count = element_count(part.sizes);
    if (!like && rows) like = &part;
    if (like && rows.like(channel_rows(*like))) alike += count;
    all += count;
  }
  return 2 * alike >= all ? like : nullptr;
}

struct Band {
  size_t part;
  int64_t offset;  // of its first byte in the whole
  StridedCopy copy;
};

Band band(size_t i, int64_t start, const Sizes& part, const Sizes& whole, size_t axis,
          bool into_whole, size_t bytes) {
  const Sizes own = strides_of(part), outer = strides_of(whole);
  return {i, start * outer[axis] * static_cast<int64_t>(bytes),
          into_whole ? StridedCopy(part, own, outer, bytes) : StridedCopy(part, outer, own, bytes)};
}

std::unique_ptr<Kernel> concat(const Request& r) {
  const auto rank = static_cast<int64_t>(r.out().sizes.size());
  const auto axis = static_cast<size_t>(r.axis("axis", rank));
  int64_t total = 0;
  for (size_t i = 0; i < r.inputs(); ++i) total += r.sizes(i)[axis];
  if (total != r.out().sizes[axis])
    r.refuse("parts have {} in axis {}, expected {}", total, axis, r.out().sizes[axis]);
  const Operand* like = most_alike(r.binding().in);
  const Lie lie = like ? lie_as(*like, r.out(), r.binding().in) : Lie();
  const Sizes whole = in_memory(r.out().sizes, lie.rows);
  const size_t along = axis_in_memory(axis, r.out().sizes.size(), lie.rows);
  std::vector<Band> bands;
  int64_t at = 0;
  for (size_t i = 0; i < r.inputs(); ++i) {
    const Sizes part = in_memory(r.sizes(i), lie.rows);
    bands.push_back(band(i, at, part, whole, along, true, item_bytes(r)));
    at += part[along];
  }
  const auto run = [bands](const Args& args) {
    for (const Band& b : bands) b.copy.run(args.in[b.part], output<char>(args) + b.offset);
  };
  return make_kernel("Concat", run, lie.parts, {lie.whole});
}

std::unique_ptr<Kernel> split(const Request& r) {
  const auto axis = static_cast<size_t>(r.axis("axis", static_cast<int64_t>(r.sizes(0).size())));
  const auto sizes = r.ints(1);
  const auto count = static_cast<int64_t>(r.node().out.size());
  const int64_t chunk = (r.sizes(0)[axis] + count - 1) / count;
  std::vector<int64_t> starts;
  int64_t at = 0;
  for (size_t i = 0; i < r.outputs(); ++i) {
    starts.push_back(at);
    at += sizes ? (*sizes)[i] : r.wants(i) ? r.out(i).sizes[axis] : chunk;
  }
  const ChannelRows rows = channel_rows(r.in(0));
  const int64_t unit = axis == 1 && rows && !rows.last ? rows.lanes : 1;
  const bool whole_rows =
      rows && std::all_of(starts.begin(), starts.end(), [&](int64_t at) { return at % unit == 0; });
  const Lie lie = whole_rows ? lie_as(r.in(0), r.in(0), r.binding().out) : Lie();
  const Sizes whole = in_memory(r.sizes(0), lie.rows);
  const size_t along = axis_in_memory(axis, r.sizes(0).size(), lie.rows);
  std::vector<Band> bands;
  for (size_t i = 0; i < r.outputs(); ++i)
    if (r.wants(i))
      bands.push_back(band(i, lie.rows ? starts[i] / unit : starts[i],
                           in_memory(r.out(i).sizes, lie.rows), whole, along, false,
                           item_bytes(r)));
  const auto run = [bands](const Args& args) {
    for (const Band& b : bands) b.copy.run(input<char>(args, 0) + b.offset, args.out[b.part]);
  };
  return make_kernel("Split", run, {lie.whole}, lie.parts);
}

Verdict known_split(const Node& node) {
  if (node.has_input(1) && !node.graph->contents(node.in[1]) && !constant_of(node.input(1)))
    return Verdict::no("the sizes of the parts are known only at run time");
  return Verdict::yes();
}

}  // namespace

static void register_slice_concat(KernelTable& table) {
  table.op("Slice").take_layouts().add("copy", kAny, slice);
  table.op("ort::SliceGrad").take_layouts().add("copy", kAny, slice_grad);
  table.op("Concat").take_layouts().add("copy", kAny, concat);
  table.op("Split").take_layouts().add("copy", kAny, known_split, split);
}

const Family<KernelTable> kSliceConcatKernels("cpu", "slice_concat", register_slice_concat);

}  // namespace ort::cpu
