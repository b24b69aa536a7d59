// Collectives by c10d's groups, which are found by name at each run. What is under way lies in
// tensors of its own: a run that fails gives the arena back before the data has come.
#include "providers/aten/collective.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "csrc/core/run_state.h"
#include "csrc/torch_bridge/exchange/memory.h"
#include "csrc/torch_bridge/internals/modes.h"
#include "csrc/torch_bridge/internals/process_group.h"
#include "providers/aten/tensors.h"

// Torch 2.15 has other names for two of these, which 2.11 lacks.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace ort::aten {
namespace {

using Tensors = std::vector<at::Tensor>;
using Group = c10::intrusive_ptr<c10d::ProcessGroup>;
using Work = c10::intrusive_ptr<c10d::Work>;

c10d::ReduceOp reduction(const std::string& name) {
  static const std::map<std::string, c10d::ReduceOp::RedOpType> known{
      {"sum", c10d::ReduceOp::SUM},         {"avg", c10d::ReduceOp::AVG},
      {"product", c10d::ReduceOp::PRODUCT}, {"min", c10d::ReduceOp::MIN},
      {"max", c10d::ReduceOp::MAX},         {"band", c10d::ReduceOp::BAND},
      {"bor", c10d::ReduceOp::BOR},         {"bxor", c10d::ReduceOp::BXOR}};
  return known.at(name);
}

Work all_reduce(c10d::ProcessGroup& group, const Attrs& attrs, at::Tensor& x, at::Tensor&) {
  c10d::AllreduceOptions options;
  options.reduceOp = reduction(attrs.s("op"));
  Tensors tensors{x};
  return group.allreduce(tensors, options);
}

Work all_gather(c10d::ProcessGroup& group, const Attrs&, at::Tensor& x, at::Tensor& y) {
  return group._allgather_base(y, x, {});
}

Work reduce_scatter(c10d::ProcessGroup& group, const Attrs& attrs, at::Tensor& x, at::Tensor& y) {
  c10d::ReduceScatterOptions options;
  options.reduceOp = reduction(attrs.s("op"));
  return group._reduce_scatter_base(y, x, options);
}

Work broadcast(c10d::ProcessGroup& group, const Attrs& attrs, at::Tensor& x, at::Tensor&) {
  c10d::BroadcastOptions options;
  options.rootRank = attrs.i("root");
  Tensors tensors{x};
  return group.broadcast(tensors, options);
}

Work reduce(c10d::ProcessGroup& group, const Attrs& attrs, at::Tensor& x, at::Tensor&) {
  c10d::ReduceOptions options;
  options.rootRank = attrs.i("root");
  Tensors tensors{x};
  return group.reduce(tensors, options);
}

// How c10d does an op: from x to y, which is x itself where the result has its shape.
struct Way {
  Work (*start)(c10d::ProcessGroup&, const Attrs&, at::Tensor& x, at::Tensor& y);
  bool in_place = true;
  bool on_root_alone = false;  // the others' result is zeros
};

const Way* way_of(const Node& node) {
  static const std::map<std::string, Way> ways{{"ort::AllReduce", {all_reduce}},
                                               {"ort::AllGather", {all_gather, false}},
                                               {"ort::ReduceScatter", {reduce_scatter, false}},
                                               {"ort::Broadcast", {broadcast}},
                                               {"ort::Reduce", {reduce, true, true}}};
  const auto found = ways.find(node.qualified());
  return found == ways.end() ? nullptr : &found->second;
}

// What a node asks of its group, and how errors tell of it.
struct CollectiveCall {
  Way way;
  Attrs attrs;
  std::string name, place;
  size_t bytes = 0;
};

// One collective under way.
class Flight {
 public:
  Flight(const CollectiveCall& call, at::Tensor x, at::Tensor y)
      : call_(call), x_(std::move(x)), y_(call.way.in_place ? x_ : std::move(y)) {
    collectively([&] {
      group_ = bridge::process_group(call_.attrs.s("group"));
      const int64_t size = call_.attrs.i("size");
      check(group_->getSize() == size, "it has {} ranks now, expected {}", group_->getSize(), size);
      work_ = call_.way.start(*group_, call_.attrs, x_, y_);
    });
  }

  // Waits where the data is not there yet.
  const at::Tensor& result() {
    if (!work_) return y_;
    collectively([&] { work_->wait(); });
    if (call_.way.on_root_alone && group_->getRank() != call_.attrs.i("root")) y_.zero_();
    work_.reset();
    x_.reset();
    return y_;
  }

 private:
  // What fails is torch's own error and no Error of the engine's: eager may not try it again, as
  // the other ranks are elsewhere by then.
  template <class F>
  void collectively(F&& run) const {
    std::string why;
    try {
      return run();
    } catch (const c10::Error& error) {
      why = error.what_without_backtrace();
    } catch (const std::exception& error) {
      why = error.what();
    }
    const std::string rank = group_ ? format(", rank {}", group_->getRank()) : "";
    throw c10::DistBackendError(
        {__func__, __FILE__, __LINE__},
        format("[{}] {} bytes over the group '{}' of {}{}: {}; {}", call_.name, call_.bytes,
               call_.attrs.s("group"), call_.attrs.i("size"), rank, why, call_.place));
  }

  const CollectiveCall call_;  // it may outlive the kernel
  Group group_;
  at::Tensor x_, y_;
  Work work_;
};

class StartKernel : public Kernel {
 public:
  StartKernel(const Node& node, const Binding& binding)
      : call_{*way_of(node), node.attrs, node.qualified(), node.describe()},
        x_(binding.in.at(0)),
        y_(binding.out.at(0)),
        hands_over_(binding.out.size() > 1 && binding.out[1].present) {
    call_.bytes = static_cast<size_t>(element_count(x_.sizes)) * size_of(x_.dtype);
  }

  void run(const Args& args) const override {
    check_stream(args, {x_});
    const bridge::ThreadState state(false);
    const bool once = call_.attrs.has("once") && args.run;
    std::shared_ptr<void>* kept = once ? args.run->once(call_.attrs.i("once")) : nullptr;
    std::shared_ptr<void> flight = kept ? *kept : nullptr;
    if (!flight) flight = start(args);
    if (kept) *kept = flight;
    if (hands_over_)
      *static_cast<std::shared_ptr<void>*>(args.out[1]) = std::move(flight);
    else
      store(static_cast<Flight*>(flight.get())->result(), args.out[0], y_, call_.name);
  }

  std::string name() const override {
    const std::string how = call_.attrs.has("op") ? " " + call_.attrs.s("op") : "";
    return format("{}{} of {} bytes", call_.name, how, call_.bytes);
  }

 private:
  std::shared_ptr<Flight> start(const Args& args) const {
    const at::Tensor y = call_.way.in_place ? at::Tensor() : bridge::empty(y_);
    return std::make_shared<Flight>(call_, copy_of(args.in[0], x_), y);
  }

  CollectiveCall call_;
  Operand x_, y_;
  bool hands_over_;
};

class WaitKernel : public Kernel {
 public:
  WaitKernel(const Node& node, const Binding& binding)
      : place_(node.describe()), y_(binding.out.at(0)) {}

  void run(const Args& args) const override {
    check_stream(args, {y_});
    const bridge::ThreadState state(false);
    // Taken out of its slot it is freed when it is read; a retained frame holds another.
    const auto taken = std::move(*static_cast<std::shared_ptr<void>*>(args.in[1]));
    check(taken != nullptr, "[ort::Wait] the collective was waited for before; {}", place_);
    store(static_cast<Flight*>(taken.get())->result(), args.out[0], y_, "[ort::Wait] the result");
  }

  bool in_place(size_t, size_t) const override { return true; }  // y has no data yet
  std::string name() const override { return "ort::Wait"; }

 private:
  std::string place_;
  Operand y_;
};

}  // namespace

Verdict is_collective(const Node& node) {
  if (way_of(node)) return Verdict::yes();
  return require(node.qualified() == "ort::Wait" && node.has_input(1),
                 "it is no operator of torch, nor a collective");
}

std::unique_ptr<Kernel> prepare_collective(const Node& node, const Binding& binding) {
  if (way_of(node)) return std::make_unique<StartKernel>(node, binding);
  return std::make_unique<WaitKernel>(node, binding);
}

}  // namespace ort::aten
