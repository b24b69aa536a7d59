// Scratch: the float32 copies, then what the inner kernel asks for.
#include "providers/cpu/widened.h"

#include "csrc/core/parallel.h"
#include "providers/cpu/convert.h"

namespace ort::cpu {
namespace {

// Operand `index` among the inputs or the outputs, and where its float32 copy is.
struct Copy {
  size_t index;
  DType half;
  int64_t count;
  size_t at;
};

class Widened final : public Kernel {
 public:
  explicit Widened(const Binding& binding)
      : in_count_(binding.in.size()), out_count_(binding.out.size()) {
    reserve(binding.in, in_);
    reserve(binding.out, out_);
  }
  void set_inner(std::unique_ptr<Kernel> inner) { inner_ = std::move(inner); }

  void run(const Args& args) const override {
    auto* scratch = static_cast<char*>(args.scratch);
    std::vector<void*> pointers(args.in, args.in + in_count_);
    pointers.insert(pointers.end(), args.out, args.out + out_count_);
    for (const Copy& copy : in_) {
      auto* wide = reinterpret_cast<float*>(scratch + copy.at);
      const auto* half = static_cast<const uint16_t*>(args.in[copy.index]);
      each_piece(copy.count,
                 [&](int64_t at, int64_t count) { widen(copy.half, half + at, wide + at, count); });
      pointers[copy.index] = wide;
    }
    for (const Copy& copy : out_) pointers[in_count_ + copy.index] = scratch + copy.at;
    inner_->run({pointers.data(), pointers.data() + in_count_, scratch + bytes_, args.stream});
    for (const Copy& copy : out_) {
      const auto* wide = reinterpret_cast<const float*>(scratch + copy.at);
      auto* half = static_cast<uint16_t*>(args.out[copy.index]);
      each_piece(copy.count, [&](int64_t at, int64_t count) {
        narrow(wide + at, copy.half, half + at, count);
      });
    }
  }

  size_t scratch_bytes() const override { return bytes_ + inner_->scratch_bytes(); }
  std::string name() const override { return inner_->name(); }

 private:
  template <class F>
  static void each_piece(int64_t count, F&& f) {
    constexpr int64_t kPiece = 1 << 14;
    const int64_t pieces = (count + kPiece - 1) / kPiece;
    parallel_for(pieces, count, [&](int64_t begin, int64_t end, int) {
      f(begin * kPiece, std::min(end * kPiece, count) - begin * kPiece);
    });
  }

  void reserve(const std::vector<Operand>& operands, std::vector<Copy>& copies) {
    for (size_t i = 0; i < operands.size(); ++i) {
      const Operand& operand = operands[i];
      if (!operand.present || !is_half(operand.dtype)) continue;
      const int64_t count = element_count(operand.sizes);
      copies.push_back({i, operand.dtype, count, bytes_});
      bytes_ += (static_cast<size_t>(count) * sizeof(float) + 63) / 64 * 64;
    }
  }

  size_t in_count_, out_count_;
  std::vector<Copy> in_, out_;
  size_t bytes_ = 0;
  std::unique_ptr<Kernel> inner_;
};

}  // namespace

std::unique_ptr<Kernel> widened(const Request& request, const Make& make) {
  Binding wide = request.binding();
  for (std::vector<Operand>* operands : {&wide.in, &wide.out})
    for (Operand& operand : *operands) {
      operand.any_layout = false;  // what is widened is row-major
      if (is_half(operand.dtype)) {
        operand.dtype = DType::f32;
        operand.constant = {};
      }
    }
  auto kernel = std::make_unique<Widened>(request.binding());
  auto inner = make(Request(request.node(), wide));
  if (!inner) return nullptr;
  kernel->set_inner(std::move(inner));
  return kernel;
}

}  // namespace ort::cpu
