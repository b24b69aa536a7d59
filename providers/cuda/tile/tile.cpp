// Arguments of a program's text, and its launches.
#include "providers/cuda/tile/tile.h"

#include <algorithm>

#include "providers/cuda/code.h"
#include "providers/cuda/tile/text.h"
#include "providers/tile/region.h"

namespace ort::cuda {
namespace {

using tile::over_cols;
using tile::over_rows;
using tile::Port;
using tile::Role;
using tile::Space;

class TileKernel final : public Kernel {
 public:
  TileKernel(tile::BoundRegion bound, TileForm form, std::string name, Gpu& gpu,
             std::shared_ptr<const Code> code)
      : program_(std::move(bound.program)),
        extent_(std::move(bound.extent)),
        form_(form),
        name_(std::move(name)),
        run_(code, gpu, "run") {
    extent_.inputs.resize(program_->inputs.size());
    if (sums_columns(*program_)) fold_ = Launch(code, gpu, "fold");
    if (takes_packs()) {
      packs_ = Launch(code, gpu, "packs");
      list_packed();
    }
    const int64_t cells = extent_.rows * extent_.cols;
    grid_ = form_.kind == TileForm::flat
                ? grid_for(gpu, cells, 256, 256)
                : grid_for(gpu, extent_.rows, form_.rows_at_once, form_.threads());
    packed_grid_ = form_.kind == TileForm::flat && takes_packs()
                       ? grid_for(gpu, cells / form_.lanes, 256, 256)
                       : grid_;
    sums_ = std::count_if(program_->code.begin(), program_->code.end(),
                          [](const tile::Instruction& i) { return tile::sums_columns(i.op); });
    if (sums_ > 0)
      packed_grid_.blocks = grid_.blocks =
          std::min<int64_t>(grid_.blocks, int64_t{2} * gpu.multiprocessors());
  }

  void run(const Args& args) const override {
    if (makes_nothing()) return;
    Words words;
    for (size_t i = 0; i < program_->inputs.size(); ++i) {
      words.add(Reach{args.in[i], bytes_of_input(i)});
    }
    add_outputs(words, args);
    words.add(Reach{args.scratch, scratch_bytes()});
    words.add(Reach{args.failure, sizeof *args.failure});
    for (const int64_t number : {int64_t{args.mark}, extent_.rows, extent_.cols}) words.add(number);
    for (size_t i = 0; i < program_->inputs.size(); ++i) {
      if (!program_->inputs[i].strided) continue;
      words.add(padded(extent_.inputs[i].sizes, 1));
      words.add(padded(extent_.inputs[i].strides, 0));
    }
    add_late(words);
    for (const uint32_t counter : counters_of(*program_)) words.add(uint64_t{counter});
    const bool packed = !packed_.empty() && are_aligned(args);
    packed ? packs_(packed_grid_, words, args.stream) : run_(grid_, words, args.stream);
    if (sums_ > 0) fold(args);
  }

  size_t scratch_bytes() const override {
    return static_cast<size_t>(sums_ * bands() * extent_.cols) * size_of(program_->element);
  }

  bool in_place(size_t in, size_t out) const override {
    const Port& from = program_->inputs[in];
    const Port& to = program_->outputs[out];
    const auto sum = [&](const tile::Instruction& i) {
      return tile::sums_columns(i.op) && program_->slots[i.dst].index == static_cast<int>(out);
    };
    return from.role == Role::data && every_cell(from.space) && every_cell(to.space) &&
           !from.strided && size_of(from.dtype) == size_of(to.dtype) &&
           std::none_of(program_->code.begin(), program_->code.end(), sum) &&
           from.space == to.space && program_->last_read[in] <= program_->first_write[out];
  }

  bool may_be_recorded() const override { return true; }
  std::string name() const override { return name_; }
  std::string failure() const override {
    return may_fail(*program_) ? "[Div] division of an integer by zero" : "";
  }

 private:
  bool every_cell(Space space) const {
    return (over_rows(space) || extent_.rows == 1) && (over_cols(space) || extent_.cols == 1);
  }
  // Without elements an axis may still be as long as it likes.
  bool makes_nothing() const {
    return std::all_of(program_->outputs.begin(), program_->outputs.end(), [&](const Port& port) {
      return (over_rows(port.space) && extent_.rows == 0) ||
             (over_cols(port.space) && extent_.cols == 0);
    });
  }
  bool takes_packs() const {
    const int64_t lanes = form_.lanes, cells = extent_.rows * extent_.cols;
    const auto steps_by_packs = [&](size_t i) {
      const Sizes& strides = extent_.inputs[i].strides;
      return !in_packs(program_->inputs[i]) ||
             std::all_of(strides.begin(), strides.end(), [&](int64_t s) { return s % lanes == 0; });
    };
    if (lanes == 0 || cells == 0) return false;
    for (size_t i = 0; i < program_->inputs.size(); ++i)
      if (!steps_by_packs(i)) return false;
    return (is_rowless(*program_) ? cells : extent_.cols) % lanes == 0;
  }
  // What is loaded and stored by lanes, and the bytes of a pack.
  void list_packed() {
    const auto add = [&](bool is_input, size_t i, const Port& port) {
      packed_.push_back({is_input, i, size_of(port.dtype) * static_cast<size_t>(form_.lanes)});
    };
    const std::set<size_t> sums = outputs_of_sums(*program_);
    for (size_t i = 0; i < program_->inputs.size(); ++i)
      if (in_packs(program_->inputs[i])) add(true, i, program_->inputs[i]);
    for (size_t o = 0; o < program_->outputs.size(); ++o)
      if (in_packs(program_->outputs[o]) && !sums.count(o)) add(false, o, program_->outputs[o]);
  }
  // A caller's tensor may begin anywhere in its storage.
  bool are_aligned(const Args& args) const {
    return std::all_of(packed_.begin(), packed_.end(), [&](const Packed& p) {
      const void* data = p.is_input ? args.in[p.index] : args.out[p.index];
      return reinterpret_cast<uintptr_t>(data) % p.bytes == 0;
    });
  }
  int64_t cells_of(const Port& port) const {
    return (over_rows(port.space) ? extent_.rows : 1) * (over_cols(port.space) ? extent_.cols : 1);
  }
  size_t bytes_of_input(size_t i) const {
    const Port& port = program_->inputs[i];
    int64_t cells = cells_of(port);
    if (port.strided) {
      const tile::Rows& rows = extent_.inputs[i];
      cells = over_cols(port.space) ? extent_.cols : 1;
      for (size_t axis = 0; axis < rows.sizes.size(); ++axis)
        cells += (rows.sizes[axis] - 1) * rows.strides[axis];
    }
    return static_cast<size_t>(cells) * size_of(port.dtype);
  }
  int64_t bands() const { return sums_ > 0 ? grid_.blocks * form_.rows_at_once : 0; }

  Sizes padded(Sizes numbers, int64_t with) const {
    numbers.insert(numbers.begin(), form_.axes - numbers.size(), with);
    return numbers;
  }
  void add_outputs(Words& words, const Args& args) const {
    for (size_t o = 0; o < program_->outputs.size(); ++o) {
      const Port& port = program_->outputs[o];
      words.add(reach(args.out[o], cells_of(port), size_of(port.dtype)));
    }
  }
  void add_late(Words& words) const {
    for (const tile::Number& number : late_numbers(*program_)) words.add(number.at(extent_.cols));
  }

  void fold(const Args& args) const {
    Words words;
    add_outputs(words, args);
    words.add(Reach{args.scratch, scratch_bytes()});
    words.add(bands());
    words.add(extent_.cols);
    add_late(words);
    fold_({(extent_.cols + 31) / 32, 512}, words, args.stream);
  }

  struct Packed {
    bool is_input;
    size_t index, bytes;
  };

  std::shared_ptr<const tile::TileProgram> program_;
  tile::Extent extent_;
  TileForm form_;
  std::string name_;
  Launch run_, packs_, fold_;
  Grid grid_, packed_grid_;
  std::vector<Packed> packed_;  // empty: nothing is
  int64_t sums_ = 0;
};

Prepared prepared(tile::BoundRegion bound, std::string name, const Device& device) {
  Gpu& gpu = gpu_of(device);
  const TileForm form = form_of(*bound.program, bound.extent);
  const std::string text = tile_text(*bound.program, form);
  const int arch = gpu.arch();
  Source source{text, [text, arch] { return Code::of(text, arch); }};
  return {{std::move(source)},
          [bound = std::move(bound), form, name = std::move(name),
           &gpu](const Prepared::Compiled& compiled) -> std::unique_ptr<Kernel> {
            return std::make_unique<TileKernel>(bound, form, name, gpu,
                                                std::static_pointer_cast<const Code>(compiled[0]));
          }};
}

}  // namespace

Prepared prepare_tile(const Region& region, const Binding& binding) {
  return prepared(tile::bind(region, binding), tile::name_of(region), binding.out.at(0).device);
}

std::unique_ptr<Kernel> make_tile_kernel(std::shared_ptr<const tile::TileProgram> program,
                                         tile::Extent extent, std::string name,
                                         const Device& device) {
  return prepared({std::move(program), std::move(extent)}, std::move(name), device).finish();
}

}  // namespace ort::cuda
