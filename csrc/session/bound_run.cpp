// A bound run is the plan's where there is one plan, else the session's, copied to where it goes.
#include "csrc/session/bound_run.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "csrc/runtime/thread_limit.h"

namespace ort {
namespace {

void copy_into(const Tensor& to, const Item& item, const std::string& name) {
  check(item.is_tensor(), "output '{}' is no tensor, so no memory can be given for it", name);
  const Tensor& from = item.tensor();
  check(to.dtype == from.dtype && to.sizes == from.sizes,
        "output '{}' is {} of shape {}, the memory given for it is {} of shape {}", name,
        from.dtype, from.sizes, to.dtype, to.sizes);
  check(from.dtype != DType::string, "output '{}' has strings, so no memory can be given for it",
        name);
  if (from.bytes() > 0) std::memcpy(to.data, from.data, from.bytes());
}

bool overlap(const Tensor& a, const Tensor& b) {
  const auto *at = a.as<uint8_t>(), *bt = b.as<uint8_t>();
  return at < bt + b.bytes() && bt < at + a.bytes();
}

// A kernel may write before it has read all of its inputs.
void check_apart(const std::string& output, const Tensor& into, const std::string& place,
                 const Tensor& other) {
  check(!into.data || !other.data || !overlap(into, other),
        "the memory given for output '{}' overlaps that of {}", output, place);
}

}  // namespace

BoundRun::BoundRun(InferenceSession& session, std::vector<size_t> outputs, std::vector<Item> inputs,
                   std::vector<Tensor> into)
    : session_(session),
      outputs_(std::move(outputs)),
      inputs_(std::move(inputs)),
      into_(std::move(into)) {
  into_.resize(outputs_.size());
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const std::string& name = session_.outputs()[outputs_[i]].name;
    for (size_t k = 0; k < inputs_.size(); ++k)
      if (inputs_[k].is_tensor())
        check_apart(name, into_[i], format("input '{}'", session_.inputs()[k].name),
                    inputs_[k].tensor());
    for (size_t k = 0; k < i; ++k)
      check_apart(name, into_[i], format("output '{}'", session_.outputs()[outputs_[k]].name),
                  into_[k]);
  }
  std::vector<size_t> order(outputs_.size());  // of the outputs asked, as the model has them
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return outputs_[a] < outputs_[b]; });
  std::vector<size_t> ascending;
  std::vector<Tensor> memory;
  for (const size_t i : order) {
    ascending.push_back(outputs_[i]);
    memory.push_back(into_[i]);
  }
  if (std::adjacent_find(ascending.begin(), ascending.end()) != ascending.end()) return;
  plan_ = session_.bind(ascending, inputs_, memory);
  if (!plan_) return;
  std::vector<Item> results(order.size());
  for (size_t k = 0; k < order.size(); ++k) results[order[k]] = plan_->memory()[k];
  results_ = std::make_shared<const std::vector<Item>>(std::move(results));
}

BoundRun::Results BoundRun::run(const std::atomic<bool>* ended) {
  const std::lock_guard lock(mutex_);
  if (!plan_) return run_anew(ended);
  const ThreadLimit limit(session_.threads());
  RunState state = session_.new_run(ended);
  plan_->run(state);
  return results_;
}

BoundRun::Results BoundRun::run_anew(const std::atomic<bool>* ended) {
  std::vector<Item> results = session_.run(outputs_, inputs_, {.ended = ended});
  for (size_t i = 0; i < results.size(); ++i) {
    if (!is_given(into_[i])) continue;
    copy_into(into_[i], results[i], session_.outputs()[outputs_[i]].name);
    results[i] = into_[i];
  }
  return std::make_shared<const std::vector<Item>>(std::move(results));
}

}  // namespace ort
