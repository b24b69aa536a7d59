// An operator runs by torch's dispatcher. Where its gradient is needed it runs on tensors of its
// own, as the arena reuses the memory of its inputs while its history still refers to them.
#include "providers/aten/operator.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include "csrc/core/run_state.h"
#include "csrc/torch_bridge/internals/modes.h"
#include "providers/aten/arguments.h"
#include "providers/aten/history.h"
#include "providers/aten/tensors.h"

namespace ort::aten {
namespace {

Tensors tensors_of(torch::jit::Stack& stack) {
  Tensors tensors;
  for (c10::IValue& value : stack) {
    if (value.isTensor())
      tensors.push_back(std::move(value).toTensor());
    else
      for (const at::Tensor& tensor : value.toTensorList()) tensors.push_back(tensor);
  }
  return tensors;
}

// How many tensors the operator gives; the node's output after them is its history.
size_t count_of_outputs(const Node& node) {
  const auto* types = std::get_if<std::vector<std::string>>(node.attrs.find("types"));
  return types ? types->size() : 0;  // an empty list has no kind
}

// Which inputs the backward of `node` asks for; empty when it has none. What runs once keeps its
// history for any backward.
std::vector<int64_t> needed_by_backward(const Node& node) {
  const size_t outputs = count_of_outputs(node);
  if (node.attrs.has("once"))
    return node.attrs.has("history_of") ? node.attrs.ints("history_of") : std::vector<int64_t>{};
  if (node.out.size() <= outputs || node.out[outputs] == kNone) return {};
  if (node.attrs.has("history_of")) return node.attrs.ints("history_of");
  const auto& uses = node.output(outputs).uses();
  return uses.empty() ? std::vector<int64_t>{} : uses[0].node->attrs.ints("of");
}

class OperatorKernel : public Kernel {
 public:
  OperatorKernel(const Node& node, const Binding& binding, const c10::OperatorHandle& op)
      : name_(node.qualified()),
        place_(node.describe()),
        in_(binding.in),
        out_(binding.out),
        op_(op),
        arguments_(node, op.schema(), *binding.symbols),
        needed_(needed_by_backward(node)),
        keeps_history_(binding.out.size() > count_of_outputs(node)) {
    out_.resize(count_of_outputs(node));
    if (node.attrs.has("once")) once_ = node.attrs.i("once");
  }

  void run(const Args& args) const override {
    check_stream(args, out_);
    std::shared_ptr<void>* kept = once_ && args.run ? args.run->once(*once_) : nullptr;
    const std::shared_ptr<const Ran> ran = kept && *kept
                                               ? std::static_pointer_cast<const Ran>(*kept)
                                               : std::make_shared<const Ran>(run_operator(args));
    for (size_t i = 0; i < out_.size(); ++i)
      if (args.out[i]) store(ran->outputs[i], args.out[i], out_[i], output_name(i));
    if (kept) *kept = std::const_pointer_cast<Ran>(ran);
    if (keeps_history_ && args.out[out_.size()] && ran->history)
      *static_cast<std::shared_ptr<void>*>(args.out[out_.size()]) = ran->history;
  }

  std::string name() const override { return name_; }

 private:
  struct Ran {
    Tensors outputs;
    std::shared_ptr<OperatorHistory> history;
  };

  Ran run_operator(const Args& args) const {
    const bridge::ThreadState state(!needed_.empty());
    const bool own = once_ || !needed_.empty();  // what Python is given it may keep
    Tensors inputs;
    for (size_t i = 0; i < in_.size(); ++i)
      inputs.push_back(own ? copy_of(args.in[i], in_[i]) : over(args.in[i], in_[i]));
    OperatorHistory history(inputs, needed_);
    Ran ran{call(inputs), nullptr};
    check(ran.outputs.size() == out_.size(), "[{}] gives {} tensors, expected {}; {}", name_,
          ran.outputs.size(), out_.size(), place_);
    if (!needed_.empty()) {
      history.record(ran.outputs);
      ran.history = std::make_shared<OperatorHistory>(std::move(history));
    }
    for (at::Tensor& output : ran.outputs) output = output.detach();
    return ran;
  }

  // torch's own refusal is ours: the module then runs in eager, which raises it as eager does. What
  // runs once is not tried again.
  Tensors call(const Tensors& inputs) const {
    torch::jit::Stack stack = arguments_.with(inputs);
    if (once_) {
      op_.callBoxed(stack);
      return tensors_of(stack);
    }
    try {
      op_.callBoxed(stack);
    } catch (const c10::OutOfMemoryError& error) {
      throw OutOfMemory(format("[{}] {}; {}", name_, error.what_without_backtrace(), place_));
    } catch (const c10::Error& error) {
      fail("[{}] {}; {}", name_, error.what_without_backtrace(), place_);
    } catch (const std::exception& error) {  // an operator written in Python
      fail("[{}] {}; {}", name_, error.what(), place_);
    }
    return tensors_of(stack);
  }

  std::string output_name(size_t i) const {
    return format("[{}] output {} at {}", name_, i, place_);
  }

  std::string name_, place_;
  std::vector<Operand> in_, out_;
  c10::OperatorHandle op_;
  Arguments arguments_;
  std::vector<int64_t> needed_;
  bool keeps_history_;
  std::optional<int64_t> once_;
};

class BackwardKernel : public Kernel {
 public:
  BackwardKernel(const Node& node, const Binding& binding)
      : name_(node.attrs.s("schema") + " backward"),
        place_(node.describe()),
        in_(binding.in),
        out_(binding.out),
        of_(node.attrs.ints("of")) {
    if (node.attrs.has("once")) once_ = node.attrs.i("once");
  }

  void run(const Args& args) const override {
    check_stream(args, out_);
    std::optional<bridge::ThreadState> state;
    if (!once_) state.emplace(false);  // a user's code sees the modes around the backward
    // Taken out of its slot, it is freed as soon as it is used; a frame that retains the graph
    // still holds it.
    const std::shared_ptr<void> taken = std::move(*static_cast<std::shared_ptr<void>*>(args.in[0]));
    check(taken != nullptr, "[{}] the operator's history is gone; {}", name_, place_);
    const auto& history = *static_cast<const OperatorHistory*>(taken.get());
    Tensors output_gradients;
    for (size_t i = 1; i < in_.size(); ++i)  // Python may keep what it is given
      output_gradients.push_back(once_ ? copy_of(args.in[i], in_[i]) : over(args.in[i], in_[i]));
    const Tensors gradients = history.gradients(output_gradients, /*keep=*/taken.use_count() > 1);
    RunState::Missing* missing = once_ && args.run ? args.run->missing() : nullptr;
    for (size_t i = 0; i < out_.size(); ++i) {
      give(gradients[i], args.out[i], i);
      if (missing && !gradients[i].defined()) missing->emplace(*once_, of_[i]);
    }
  }

  std::string name() const override { return name_; }

 private:
  void give(const at::Tensor& gradient, void* data, size_t i) const {
    if (!data) return;
    if (gradient.defined())
      store(gradient, data, out_[i], format("[{}] gradient {} at {}", name_, i, place_));
    else if (at::Tensor zeros = over(data, out_[i]); zeros.numel() > 0)
      zeros.zero_();
  }

  std::string name_, place_;
  std::vector<Operand> in_, out_;
  std::vector<int64_t> of_;
  std::optional<int64_t> once_;  // of a step, whose code is a user's
};

}  // namespace

std::pair<std::string, std::string> name_of_operator(const Node& node) {
  const std::string& schema = node.attrs.s("schema");
  const size_t dot = schema.find('.');
  if (dot == std::string::npos) return {schema, ""};
  return {schema.substr(0, dot), schema.substr(dot + 1)};
}

std::unique_ptr<Kernel> prepare_operator(const Node& node, const Binding& binding) {
  const auto [name, overload] = name_of_operator(node);
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str());
  return std::make_unique<OperatorKernel>(node, binding, op);
}

std::unique_ptr<Kernel> prepare_backward(const Node& node, const Binding& binding) {
  return std::make_unique<BackwardKernel>(node, binding);
}

}  // namespace ort::aten
