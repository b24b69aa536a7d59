// The hook in C++: buckets are complete and their sums arrive in threads that should not wait for
// the GIL, and may still arrive while the interpreter ends.
#include "csrc/torch_bridge/ddp/reduction.h"

#include <pybind11/functional.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <thread>

#include "csrc/core/error.h"
#include "csrc/torch_bridge/internals/engine.h"

namespace py = pybind11;

namespace ort::bridge {
namespace {

// What is to be known of a group where it must not be held: its threads release what their work
// held, and the last to release a group would join itself.
struct Membership {
  std::string group;
  int rank, size;
};

// Of the ranks whose reduce failed: each says so in the store, and gives the others a second.
std::string silent_in(const Membership& member, c10d::Store& store) {
  const auto key = [&](int rank) {
    return "ortmodule/failed/" + member.group + "/" + std::to_string(rank);
  };
  try {
    store.set(key(member.rank), std::string("1"));
    std::this_thread::sleep_for(std::chrono::seconds(1));
    std::string silent;
    for (int rank = 0; rank < member.size; ++rank)
      if (!store.check({key(rank)})) silent += (silent.empty() ? "" : ", ") + std::to_string(rank);
    return silent.empty() ? "as on all ranks" : "without a word from rank " + silent;
  } catch (const std::exception&) {
    return "and the process that has the store is gone";
  }
}

// In a thread of its own: a store behind a link that is down answers nothing, for ever.
std::string who_is_silent(const Membership& member, const Reduction::Store& store) {
  constexpr std::chrono::seconds kPatience{5};
  const auto told = std::make_shared<std::promise<std::string>>();
  std::future<std::string> answer = told->get_future();
  std::thread([=] { told->set_value(silent_in(member, *store)); }).detach();
  if (answer.wait_for(kPatience) == std::future_status::ready) return answer.get();
  return "and the process that has the store does not answer";
}

}  // namespace

std::shared_ptr<Reduction> Reduction::of(const py::object& reducer, Group group, Store store) {
  std::shared_ptr<Reduction> made(new Reduction(reducer, std::move(group), std::move(store)));
  made->reducer_.give(made);
  return made;
}

double Reduction::mean_factor() const {
  return 1.0 / static_cast<double>(group_->getSize());
}

// DDP makes new buckets once, when it has seen in which order gradients come.
bool Reduction::is_bound_to(Buckets& buckets) const {
  if (!destinations_ || buckets.size() != buffers_.size()) return false;
  for (size_t i = 0; i < buffers_.size(); ++i)
    if (!buckets[i].buffer().is_same(buffers_[i])) return false;
  return true;
}

void Reduction::expect_no_reduce() {
  forget_backward();
  is_watched_ = false;
  error_ = nullptr;
  begun_.clear();
}

void Reduction::expect_backward() {
  expect_no_reduce();  // what a backward that failed has left
  if (reducer_.is_gone()) return;
  std::optional<Buckets> buckets = reducer_.buckets();
  if (!buckets) {  // one is sparse
    destinations_.reset();
    buffers_.clear();
    return;
  }
  if (!is_bound_to(*buckets)) {
    std::vector<Destinations::Place> places;
    buffers_.clear();
    for (size_t b = 0; b < buckets->size(); ++b) {
      const Bucket bucket = (*buckets)[b];
      buffers_.push_back(bucket.buffer());
      if (!bucket.buffer().defined() || bucket.buffer().is_sparse()) continue;
      const std::vector<at::Tensor> gradients = bucket.gradients();
      const std::vector<at::Tensor> parameters = bucket.parameters();
      for (size_t i = 0; i < gradients.size(); ++i) places.push_back({parameters[i], gradients[i]});
    }
    destinations_ = Destinations::over(places);
  }
  destinations_->open(hook_ || counted_ ? 1.0 : mean_factor());
}

// Those gradients that the products did not write with the factor.
void Reduction::divide(Bucket bucket) {
  at::Tensor& buffer = bucket.buffer();
  if (counted_) {
    const auto wide = buffer.options().layout(at::kStrided).dtype(at::kFloat);  // halves end early
    at::Tensor count = at::full({1}, has_input_ ? 1.0 : 0.0, wide);
    std::vector<at::Tensor> counts{count};
    group_->allreduce(counts)->wait();
    buffer.div_(count.item());
    return;
  }
  const std::vector<at::Tensor> parameters = bucket.parameters();
  std::vector<bool> scaled;
  for (const at::Tensor& parameter : parameters)
    scaled.push_back(destinations_ && destinations_->take_scaled(parameter));
  if (std::none_of(scaled.begin(), scaled.end(), [](bool is) { return is; })) {
    buffer.mul_(mean_factor());
    return;
  }
  const std::vector<at::Tensor> gradients = bucket.gradients();
  for (size_t i = 0; i < gradients.size(); ++i)
    if (!scaled[i]) at::Tensor(gradients[i]).mul_(mean_factor());
}

ReduceHook::Future Reduction::reduce(Bucket bucket) {
  if (has_input_ && !in_backward_) begin_backward();
  auto future = start(bucket);
  if (!watch_.reduced || !has_input_) return future;
  const at::Tensor& buffer = bucket.buffer();
  if (buffer.layout() == at::kStrided) begun_.push_back({buffer, bucket.parameters(), future});
  if (buffer.is_cpu()) take_reduced(false);  // elsewhere the stream would wait
  return future;
}

// Or in the rest of one, when a nested backward has ended.
void Reduction::begin_backward() {
  if (watch_.begins && !is_watched_) watch_.begins();
  is_watched_ = in_backward_ = true;
  at_end_of_backward([self = shared_from_this()] { self->end_backward(); });
}

// Queued before DDP's own. Not every bucket need have come: DDP may leave unused ones out.
void Reduction::end_backward() {
  forget_backward();
  take_reduced(true);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Reduction::forget_backward() {
  in_backward_ = false;
  if (destinations_) destinations_->close();
}

// In the order of the buckets. One that failed is left to DDP, whose error it is.
void Reduction::take_reduced(bool all) {
  while (!begun_.empty() && !error_ && (all || begun_.front().future->completed())) {
    const Begun bucket = std::move(begun_.front());
    begun_.pop_front();
    bucket.future->wait();
    if (bucket.future->hasError()) return begun_.clear();
    try {
      tell_reduced(bucket);
    } catch (...) {
      error_ = std::current_exception();
    }
  }
}

void Reduction::tell_reduced(const Begun& bucket) {
  if (!result(bucket.future->value()).is_alias_of(bucket.buffer)) return;  // DDP copies it
  std::vector<at::Tensor> there;
  for (const at::Tensor& parameter : bucket.parameters)
    if (parameter.grad().defined() && parameter.grad().is_alias_of(bucket.buffer))
      there.push_back(parameter);
  watch_.reduced(there);
}

ReduceHook::Future Reduction::start(Bucket bucket) {
  if (hook_) return hook_->reduce(bucket);
  divide(bucket);
  const at::Tensor& buffer = bucket.buffer();
  const Membership member{group_->getGroupName(), group_->getRank(), group_->getSize()};
  const std::string what =
      format("[DataParallel] rank {}: all_reduce of bucket {} ({} gradients, {} bytes) ",
             member.rank, bucket.index(), bucket.parameters().size(),
             static_cast<size_t>(buffer.numel()) * buffer.element_size());
  try {
    std::vector<at::Tensor> sum{buffer};
    const auto future = group_->allreduce(sum)->getFuture();
    return future->then(
        [what, member, store = store_](c10::ivalue::Future& done) {
          if (done.hasError())
            fail("{}failed, {}: {}", what, who_is_silent(member, store),
                 done.tryRetrieveErrorMessage());
          return done.value();
        },
        future->elementType());
  } catch (const std::exception& error) {
    fail("{}did not start, {}: {}", what, who_is_silent(member, store_), error.what());
  }
}

at::Tensor Reduction::result(const c10::IValue& reduced) {
  return hook_ ? hook_->result(reduced) : result_of_reduce(reduced);
}

void bind_reduction(py::module_& m) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  py::class_<Reduction, std::shared_ptr<Reduction>>(m, "Reduction")
      .def(py::init(&Reduction::of), py::arg("reducer"), py::arg("group"), py::arg("store"))
      .def("use", [](Reduction& self, py::object state,
                     py::object hook) { self.use(python_hook(std::move(state), std::move(hook))); })
      .def("reduce_in", &Reduction::reduce_in)
      .def(
          "watch",
          [](Reduction& self, std::function<void()> begins,
             std::function<void(const std::vector<at::Tensor>&)> reduced) {
            self.watch({std::move(begins), std::move(reduced)});
          },
          py::arg("begins"), py::arg("reduced"))
      .def("count_those_with_input", &Reduction::count_those_with_input)
      .def("has_input", &Reduction::has_input)
      .def("expect_backward", &Reduction::expect_backward, Unlocked())
      .def("expect_no_reduce", &Reduction::expect_no_reduce, Unlocked());
}

}  // namespace ort::bridge
