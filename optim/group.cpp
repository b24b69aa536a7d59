// Checks of torch tensors and their order in memory; what an optimizer of torch does around a step.
#include "optim/group.h"

#include <c10/util/flat_hash_map.h>

#include <algorithm>

#include "csrc/core/error.h"
#include "csrc/torch_bridge/internals/tensor_impl.h"

namespace ort::optim {
namespace {

bool is_half(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16;
}

// What must fit a row's parameter; `type` is what it must be of.
struct Check {
  const std::string& name;
  const at::Tensor& param;

  // What a step writes.
  void tensor(std::string_view what, const at::Tensor& t, at::ScalarType type) const {
    like(what, t, type, param.sizes());
    check_written(name, what, t);
  }
  void like(std::string_view what, const at::Tensor& t, at::ScalarType type,
            at::IntArrayRef sizes) const {
    check_place(name, what, t);
    if (t.scalar_type() != type || t.sizes() != sizes) [[unlikely]]
      refuse(what, t, type, sizes);  // texts are made of what does not fit alone
  }

 private:
  [[noreturn]] void refuse(std::string_view what, const at::Tensor& t, at::ScalarType type,
                           at::IntArrayRef sizes) const {
    check(t.scalar_type() == type, "[{}] {} has dtype {}, expected {} ({})", name, what,
          at::toString(t.scalar_type()), at::toString(type),
          type == param.scalar_type() ? "its parameter's" : "its master's");
    fail("[{}] {} has shape {}, expected {} (its parameter's{})", name, what, t.sizes().vec(),
         sizes.vec(), sizes == param.sizes() ? "" : " means");
  }
};

void check_step(const std::string& name, const at::Tensor& step) {
  const at::ScalarType counted = step.scalar_type();
  if (counted != at::kDouble && counted != at::kFloat)
    fail("[{}] step has dtype {}, expected float32 or float64", name, at::toString(counted));
  if (!step.is_cpu() || step.numel() != 1)
    fail("[{}] step has {} elements on {}, expected one on cpu", name, step.numel(),
         step.device().str());
}

// Of a state: its parameter's, but for means over an axis.
at::DimVector sizes_of(const std::string& state, const at::Tensor& param) {
  at::DimVector sizes(param.sizes());
  if (state == "row_var") sizes.end()[-1] = 1;
  if (state == "col_var") sizes.end()[-2] = 1;
  return sizes;
}

void check_row(const std::string& name, const std::vector<std::string>& states, const Row& row) {
  check_place(name, "param", row.param);
  check_written(name, "param", row.param);
  const at::ScalarType own = row.param.scalar_type();
  if (!is_half(own) && own != at::kFloat && own != at::kDouble)
    fail("[{}] param has dtype {}, expected float32, float64 or a half", name, at::toString(own));
  const bool has_master = row.master.defined();
  const at::ScalarType type = has_master ? at::kFloat : own;
  const Check fits{name, row.param};
  fits.like("grad", row.grad, own, row.param.sizes());
  for (size_t k = 0; k < states.size(); ++k) {
    fits.like(states[k], row.states[k], type, sizes_of(states[k], row.param));
    check_written(name, states[k], row.states[k]);
  }
  if (has_master) fits.tensor("master", row.master, type);
  if (row.mean.defined()) fits.tensor("ema", row.mean, type);
  if (row.step.defined()) check_step(name, row.step);
}

// Calls f(tensor, whether a step writes it) on all that lie as the parameter does.
template <class F>
void for_tensors(Row& row, bool zero_grad, F f) {
  f(row.param, true);
  f(row.grad, zero_grad);
  for (at::Tensor& state : row.states)
    if (state.defined()) f(state, true);
  if (row.master.defined()) f(row.master, true);
  if (row.mean.defined()) f(row.mean, true);
}

}  // namespace

DType dtype_of(at::ScalarType type) {
  if (type == at::kFloat) return DType::f32;
  if (type == at::kDouble) return DType::f64;
  return type == at::kHalf ? DType::f16 : DType::bf16;
}

void check_place(const std::string& name, std::string_view what, const at::Tensor& t) {
  check(t.is_cpu(), "[{}] {} is on {}, expected cpu", name, what, t.device().str());
  const bool plain = t.layout() == at::kStrided && !t.is_nested() && t.has_storage() &&
                     !bridge::is_python_dispatch(t) && !t._is_zerotensor();
  check(plain,
        "[{}] {} has no dense memory of its own, as a DTensor, another subclass or a sparse tensor "
        "has none, expected a plain tensor",
        name, what);
}

void check_written(const std::string& name, std::string_view what, const at::Tensor& t) {
  check(!bridge::overlaps_itself(t),
        "[{}] {} has elements that share memory, which a step cannot write: clone() it", name,
        what);
}

bool overlap(std::span<const at::Tensor> tensors) {
  std::vector<std::pair<const char*, const char*>> spans;
  spans.reserve(tensors.size());
  for (const at::Tensor& t : tensors) {
    if (t.numel() == 0) continue;
    int64_t last = 0;
    for (int64_t k = 0; k < t.dim(); ++k) last += (t.size(k) - 1) * t.stride(k);
    const char* from = static_cast<const char*>(t.const_data_ptr());
    spans.emplace_back(from, from + (last + 1) * static_cast<int64_t>(t.element_size()));
  }
  std::sort(spans.begin(), spans.end());
  for (size_t i = 1; i < spans.size(); ++i)
    if (spans[i].first < spans[i - 1].second) return true;
  return false;
}

Group::Group(const std::string& name, const std::vector<std::string>& states, std::vector<Row> rows,
             const Around& around)
    : rows_(std::move(rows)), around_(around) {
  for (const Row& row : rows_) check_row(name, states, row);
}

// Whether a parameter's memory is another's too, as that of two over one tensor.
bool Group::shares_memory() const {
  ska::flat_hash_set<const c10::StorageImpl*> seen;
  seen.reserve(rows_.size());
  const bool apart = std::all_of(rows_.begin(), rows_.end(), [&](const Row& row) {
    return seen.insert(row.param.storage().unsafeGetStorageImpl()).second;
  });
  if (apart) return false;
  std::vector<at::Tensor> params;
  for (const Row& row : rows_) params.push_back(row.param);
  return overlap(params);
}

// Steps are counted in tensors, as torch's state_dict has them.
double Group::count(const Row& row) {
  if (!row.step.defined()) return 0;
  if (row.step.scalar_type() == at::kDouble) return *row.step.mutable_data_ptr<double>() += 1;
  return *row.step.mutable_data_ptr<float>() += 1;
}

Parameter Group::parameter_of(const Row& row, const void* factors) const {
  const bool is_matrices = row.param.dim() > 1;
  Parameter p{.dtype = dtype_of(row.param.scalar_type()),
              .param = row.param.mutable_data_ptr(),
              // One that is only read may be shared until it is written.
              .grad = around_.zero_grad ? row.grad.mutable_data_ptr()
                                        : const_cast<void*>(row.grad.const_data_ptr()),
              .master = nullptr,
              .states = {},
              .mean = nullptr,
              .count = row.param.numel(),
              .rows = is_matrices ? row.param.size(-2) : 0,
              .columns = is_matrices ? row.param.size(-1) : 0,
              .by_columns = row.param.dim() == 2 && !row.param.is_contiguous(),
              .factors = factors,
              .grad_factor = around_.grad_factor,
              .mean_rest = row.fresh_mean ? 1.0 : around_.mean_rest,
              .zero_grad = around_.zero_grad};
  for (size_t k = 0; k < row.states.size(); ++k)
    if (row.states[k].defined()) p.states[k] = row.states[k].mutable_data_ptr();
  if (row.master.defined()) p.master = row.master.mutable_data_ptr<float>();
  if (row.mean.defined()) p.mean = row.mean.mutable_data_ptr();
  return p;
}

// The kernels walk memory: all of a parameter's must lie in one order without gaps, or are copied.
void Group::lay() {
  for (size_t i = 0; i < rows_.size(); ++i) {
    Row& row = rows_[i];
    bool same = row.param.is_non_overlapping_and_dense(), by_rows = false;
    for (const at::Tensor& state : row.states)
      by_rows |= state.defined() && state.sizes() != row.param.sizes();
    for_tensors(row, false, [&](const at::Tensor& t, bool) {
      same =
          same && !t.is_neg() && (by_rows ? t.is_contiguous() : t.strides() == row.param.strides());
    });
    if (same) continue;
    originals_.push_back({i, row});
    for_tensors(row, false, [](at::Tensor& t, bool) { t = t.resolve_neg().contiguous(); });
  }
}

void Group::put_back() {
  for (Original& original : originals_) {
    std::vector<at::Tensor> laid;
    for_tensors(rows_[original.row], false, [&](const at::Tensor& t, bool) { laid.push_back(t); });
    size_t k = 0;
    for_tensors(original.tensors, around_.zero_grad, [&](const at::Tensor& to, bool written) {
      const at::Tensor& from = laid[k++];
      if (written && !to.is_same(from)) to.copy_(from);
    });
    rows_[original.row] = original.tensors;
  }
  // A backward that saved the parameter before must notice, as with torch's own step.
  for (const Row& row : rows_) {
    bridge::bump_version(row.param);
    if (!around_.zero_grad) continue;
    bridge::bump_version(row.grad);
    if (row.grad.requires_grad()) row.grad.detach_();  // as torch's zero_grad
  }
}

}  // namespace ort::optim
