// Packed constants and the kernel around one primitive.
#include "providers/cpu/onednn/primitive_kernel.h"

#include <omp.h>

#include <cfenv>

#include "csrc/core/mutex.h"
#include "providers/cpu/pack_cache.h"

namespace ort::cpu {

PackedMemory::PackedMemory(const Constant& constant, dnnl::memory::desc desc,
                           const dnnl::memory::desc& wanted)
    : desc_(std::move(desc)),
      bytes_(discardable_tensor(DType::u8, {static_cast<int64_t>(wanted.get_size())})),
      memory_(wanted, cpu_engine(), bytes_.data) {
  const auto bytes = constant.hold();
  dnnl::memory plain(desc_, cpu_engine(), const_cast<void*>(bytes.get()));
  dnnl::reorder(plain, memory_).execute(cpu_stream(), plain, memory_);
}

void PackedMemory::unpack(void* to) const {
  with_onednn("to unpack", [&] {
    dnnl::memory plain(desc_, cpu_engine(), to);
    dnnl::memory packed = memory_;
    const NoFork making;
    dnnl::reorder(packed, plain).execute(cpu_stream(), packed, plain);
  });
}

bool PackedMemory::gives_back() const {
  const auto type = desc_.get_data_type();
  const bool bytes = type == dnnl::memory::data_type::s8 || type == dnnl::memory::data_type::u8;
  const bool plain = memory_.get_desc().get_format_kind() == dnnl::memory::format_kind::blocked;
  return !bytes && plain && type == memory_.get_desc().get_data_type();
}

std::shared_ptr<const PackedMemory> packed(const Constant& constant, const dnnl::memory::desc& desc,
                                           const dnnl::memory::desc& wanted) {
  using FromTo = std::pair<dnnl::memory::desc, dnnl::memory::desc>;
  static auto& packs = *new PackCache<FromTo, PackedMemory>;
  return packs.find(constant, {desc, wanted},
                    [&] { return std::make_shared<const PackedMemory>(constant, desc, wanted); });
}

PrimitiveKernel::PrimitiveKernel(dnnl::primitive primitive, dnnl::memory::desc scratchpad,
                                 std::vector<Argument> arguments, std::string name,
                                 std::optional<After> after)
    : primitive_(std::move(primitive)),
      scratchpad_(std::move(scratchpad)),
      arguments_(std::move(arguments)),
      name_(std::move(name)),
      after_(std::move(after)) {
  const auto reserve = [&](size_t bytes) {
    const size_t at = scratch_;
    scratch_ += (bytes + 63) / 64 * 64;
    return at;
  };
  reserve(scratchpad_.get_size());
  for (Argument& a : arguments_) {
    a.any_layout = a.any_layout && (!reordered(a) || is_compact(a.wanted));
    const bool same_bytes = reordered(a) && is_row_major(a.desc) && is_row_major(a.wanted);
    if (same_bytes || (a.any_layout && reordered(a))) a.desc = a.wanted;
    if (a.wanted == a.desc) a.wanted = {};
    if (!reordered(a)) continue;
    if (a.constant) {
      a.pack = packed(a.constant, a.desc, a.wanted);
      a.constant = {};  // it points to what the preparation has
      continue;
    }
    a.scratch = reserve(a.wanted.get_size());
    const auto& from = a.output ? a.wanted : a.desc;
    const auto& to = a.output ? a.desc : a.wanted;
    a.reorder = dnnl::reorder({cpu_engine(), from, cpu_engine(), to});
  }
}

std::shared_ptr<const Pack> PrimitiveKernel::pack(size_t in) const {
  for (const Argument& a : arguments_)
    if (!a.output && a.index == in && a.pack && a.pack->gives_back()) return a.pack;
  return nullptr;
}

Layout PrimitiveKernel::layout_of_operand(size_t index, bool output) const {
  for (const Argument& a : arguments_)
    if (a.any_layout && a.index == index && a.output == output) return layout_of(a.desc);
  return {};
}

// The processor notices what such an activation has wrong: a maximum of a NaN, which it loses, and
// what overflows raise a flag of the thread. Threads of others may be gone with theirs, so this is
// for one.
void PrimitiveKernel::execute(Memories& memories) const {
  constexpr int kFlags = FE_INVALID | FE_OVERFLOW;
  if (after_ && after_->bare) {
    if (omp_get_max_threads() > 1) return run_bare(memories);
    std::feclearexcept(kFlags);
  }
  primitive_.execute(cpu_stream(), memories);
  if (!after_) return;
  if (!after_->bare) return activate_result(memories);
  if (std::fetestexcept(kFlags) != 0) run_bare(memories);
}

void PrimitiveKernel::run_bare(Memories& memories) const {
  made_.call([&] {
    const NoFork making;
    bare_ = after_->bare();
  });
  memories[DNNL_ARG_SCRATCHPAD] = dnnl::memory(bare_.scratchpad, cpu_engine());
  bare_.primitive.execute(cpu_stream(), memories);
  activate_result(memories);
}

void PrimitiveKernel::activate_result(const Memories& memories) const {
  const dnnl::memory& y = memories.at(DNNL_ARG_DST);
  const bool wide = y.get_desc().get_data_type() == dnnl::memory::data_type::f32;
  const bool bfloat = y.get_desc().get_data_type() == dnnl::memory::data_type::bf16;
  const DType dtype = wide ? DType::f32 : bfloat ? DType::bf16 : DType::f16;
  activate(after_->activation, dtype, y.get_data_handle(),
           static_cast<int64_t>(y.get_desc().get_size() / size_of(dtype)));
}

void PrimitiveKernel::run(const Args& args) const {
  with_onednn("to run", [&] {
    char* scratch = static_cast<char*>(args.scratch);
    Memories memories;
    const auto outside = [&](const Argument& a) {
      return dnnl::memory(a.desc, cpu_engine(), a.output ? args.out[a.index] : args.in[a.index]);
    };
    for (const Argument& a : arguments_) {
      if (a.pack) {
        memories.emplace(a.id, a.pack->memory());
        continue;
      }
      if (!reordered(a)) {
        memories.emplace(a.id, outside(a));
        continue;
      }
      dnnl::memory inside(a.wanted, cpu_engine(), scratch + a.scratch);
      dnnl::memory given = outside(a);
      if (!a.output) a.reorder.execute(cpu_stream(), given, inside);
      memories.emplace(a.id, std::move(inside));
    }
    memories.emplace(DNNL_ARG_SCRATCHPAD, dnnl::memory(scratchpad_, cpu_engine(), scratch));
    execute(memories);
    for (const Argument& a : arguments_) {
      if (!reordered(a) || !a.output) continue;
      dnnl::memory given = outside(a);
      a.reorder.execute(cpu_stream(), memories.at(a.id), given);
    }
  });
}

}  // namespace ort::cpu
