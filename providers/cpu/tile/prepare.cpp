// One program where all operands lie alike. Over blocks of channels there may be three, one after
// the other: what has one number for each channel is made before and after the loop over the
// elements.
#include "providers/cpu/tile/prepare.h"

#include <algorithm>

#include "providers/cpu/tile/tile.h"
#include "providers/kernel_table.h"
#include "providers/tile/programs.h"

namespace ort::cpu {
namespace {

// An operand of a part: the region's own, or memory between two parts.
struct Place {
  enum class Of : uint8_t { in, out, scratch, none };
  Of of = Of::none;
  size_t at = 0;  // which operand; in scratch: the byte
};

struct Part {
  std::unique_ptr<Kernel> kernel;
  std::vector<Place> in, out;
};

class PartsKernel final : public Kernel {
 public:
  PartsKernel(std::vector<Part> parts, size_t elements, size_t between, std::string name)
      : parts_(std::move(parts)), elements_(elements), between_(between), name_(std::move(name)) {
    for (const Part& part : parts_) scratch_ = std::max(scratch_, part.kernel->scratch_bytes());
  }

  void run(const Args& args) const override {
    char* scratch = static_cast<char*>(args.scratch);
    const auto at = [&](Place place) -> void* {
      if (place.of == Place::Of::in) return args.in[place.at];
      if (place.of == Place::Of::out) return args.out[place.at];
      return place.of == Place::Of::scratch ? scratch + place.at : nullptr;
    };
    std::vector<void*> in, out;
    for (const Part& part : parts_) {
      in.clear();
      out.clear();
      std::transform(part.in.begin(), part.in.end(), std::back_inserter(in), at);
      std::transform(part.out.begin(), part.out.end(), std::back_inserter(out), at);
      Args own = args;
      own.in = in.data();
      own.out = out.data();
      own.scratch = scratch + between_;
      part.kernel->run(own);
    }
  }
  size_t scratch_bytes() const override { return between_ + scratch_; }
  std::string name() const override { return name_; }
  bool in_place(size_t in, size_t out) const override {
    const auto found = find(in, out);
    return found && parts_[elements_].kernel->in_place(found->first, found->second);
  }
  Layout layout_of_input(size_t in) const override {
    const auto at = index(parts_[elements_].in, Place::Of::in, in);
    return at ? parts_[elements_].kernel->layout_of_input(*at) : Layout();
  }
  Layout layout_of_output(size_t out) const override {
    const auto at = index(parts_[elements_].out, Place::Of::out, out);
    return at ? parts_[elements_].kernel->layout_of_output(*at) : Layout();
  }

 private:
  static std::optional<size_t> index(const std::vector<Place>& places, Place::Of of, size_t at) {
    for (size_t i = 0; i < places.size(); ++i)
      if (places[i].of == of && places[i].at == at) return i;
    return std::nullopt;
  }
  // Both as operands of the loop over the elements, where no other part reads the input.
  std::optional<std::pair<size_t, size_t>> find(size_t in, size_t out) const {
    for (size_t p = 0; p < parts_.size(); ++p)
      if (p != elements_ && index(parts_[p].in, Place::Of::in, in)) return std::nullopt;
    const auto from = index(parts_[elements_].in, Place::Of::in, in);
    const auto to = index(parts_[elements_].out, Place::Of::out, out);
    return from && to ? std::optional(std::pair(*from, *to)) : std::nullopt;
  }

  std::vector<Part> parts_;
  size_t elements_, between_, scratch_ = 0;
  std::string name_;
};

// The parts with their operands found in those of the region.
class Joining {
 public:
  Joining(const Region& region, const Binding& binding, const tile::OperandLayouts& layouts)
      : region_(region), binding_(binding), layouts_(layouts) {}

  std::unique_ptr<Kernel> run() && {
    const tile::Parts& parts = tile::parts_of(region_);
    std::vector<Part> made;
    for (size_t p = 0; p < parts.regions.size(); ++p)
      made.push_back(part(parts.regions[p], p == parts.elements));
    return std::make_unique<PartsKernel>(std::move(made), parts.elements, between_,
                                         tile::name_of(region_));
  }

 private:
  Part part(const Region& own, bool elements) {
    Part part;
    Binding bound;
    tile::OperandLayouts layouts;
    bound.symbols = binding_.symbols;
    const auto add = [&](ValueId id, bool output) {
      const Place place = place_of(id);
      (output ? part.out : part.in).push_back(place);
      (output ? bound.out : bound.in).push_back(operand(id, place));
      Layout layout;
      if (place.of == Place::Of::in) layout = layouts_.in[place.at];
      if (place.of == Place::Of::out) layout = layouts_.out[place.at];
      (output ? layouts.out : layouts.in).push_back(std::move(layout));
    };
    for (const ValueId id : own.in) add(id, false);
    for (const ValueId id : own.out) add(id, true);
    tile::BoundRegion found = tile::bind(own, bound, elements ? layouts_.block : 0);
    part.kernel = make_tile_kernel(found.program, std::move(found.extent), tile::name_of(own),
                                   std::move(layouts));
    return part;
  }

  Place place_of(ValueId id) {
    if (id == kNone) return {};
    const auto at = [&](const std::vector<ValueId>& ids) {
      return static_cast<size_t>(std::find(ids.begin(), ids.end(), id) - ids.begin());
    };
    if (const size_t i = at(region_.in); i < region_.in.size()) return {Place::Of::in, i};
    if (const size_t o = at(region_.out); o < region_.out.size()) return {Place::Of::out, o};
    const auto [found, missing] = kept_.try_emplace(id, between_);
    if (missing) {
      const Operand type = operand(id, {});
      between_ += (Layout().bytes(type.sizes, type.dtype) + 63) / 64 * 64;
    }
    return {Place::Of::scratch, found->second};
  }

  Operand operand(ValueId id, Place place) const {
    if (place.of == Place::Of::in) return binding_.in[place.at];
    if (place.of == Place::Of::out) return binding_.out[place.at];
    if (id == kNone) return {};
    const auto& type = region_.nodes[0]->graph->value(id).type();
    Operand operand;
    operand.dtype = type.dtype;
    operand.sizes = evaluate(*type.dims, binding_.symbols);
    operand.present = true;
    return operand;
  }

  const Region& region_;
  const Binding& binding_;
  const tile::OperandLayouts& layouts_;
  std::map<ValueId, size_t> kept_;  // where in scratch
  size_t between_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> prepare_tile(const Region& region, const Binding& binding) {
  tile::OperandLayouts layouts = tile::shared_layouts(region, binding);
  if (layouts.block > 0) return Joining(region, binding, layouts).run();
  tile::BoundRegion bound = tile::bind(region, binding);
  return make_tile_kernel(bound.program, std::move(bound.extent), tile::name_of(region),
                          std::move(layouts));
}

}  // namespace ort::cpu
