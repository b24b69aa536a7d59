// Packed constants and the kernel around one primitive.
#include "providers/cpu/onednn/primitive_kernel.h"

#include <omp.h>

#include <cfenv>
#include <map>

namespace ort::cpu {

std::shared_ptr<const dnnl::memory> packed(const void* data, const dnnl::memory::desc& desc,
                                           const dnnl::memory::desc& wanted) {
  struct Pack {
    dnnl::memory::desc desc, wanted;
    std::weak_ptr<const dnnl::memory> memory;
  };
  static std::mutex mutex;
  static auto& packs = *new std::multimap<const void*, Pack>;
  std::lock_guard lock(mutex);
  std::erase_if(packs, [](const auto& entry) { return entry.second.memory.expired(); });
  const auto [first, last] = packs.equal_range(data);
  for (auto it = first; it != last; ++it)
    if (it->second.desc == desc && it->second.wanted == wanted)
      if (auto found = it->second.memory.lock()) return found;
  auto made = std::make_shared<dnnl::memory>(wanted, cpu_engine());
  dnnl::memory plain(desc, cpu_engine(), const_cast<void*>(data));
  dnnl::reorder(plain, *made).execute(cpu_stream(), plain, *made);
  packs.emplace(data, Pack{desc, wanted, made});
  return made;
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
      continue;
    }
    a.scratch = reserve(a.wanted.get_size());
    const auto& from = a.output ? a.wanted : a.desc;
    const auto& to = a.output ? a.desc : a.wanted;
    a.reorder = dnnl::reorder({cpu_engine(), from, cpu_engine(), to});
  }
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
  std::call_once(made_, [&] { bare_ = after_->bare(); });
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
        memories.emplace(a.id, *a.pack);
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
