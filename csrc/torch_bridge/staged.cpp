// Items over torch's memory and tensors over the engine's.
#include "csrc/torch_bridge/staged.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "csrc/graph/schema.h"
#include "csrc/torch_bridge/exchange/memory.h"
#include "csrc/torch_bridge/internals/new_tensor.h"

namespace ort::bridge {
namespace {

std::set<std::string> symbols_of(const Type& type) {
  std::set<std::string> names;
  for (const Dim& dim : type.dims.value_or(Dims{})) dim.collect_symbols(names);
  return names;
}

// What eager does not read may be written to: the backward reads a copy.
Item copied(const at::Tensor& output, size_t& bytes) {
  bytes += output.nbytes();
  return item_of(output.clone());
}

}  // namespace

bool may_be_staged(const Graph& graph) {
  std::set<std::string> known;
  for (const ValueId id : graph.inputs()) known.merge(symbols_of(graph.value(id).type()));
  const auto follows = [&](const Node* node, ValueId id) {
    if (id == kNone || !node->graph->value(id).type().is_tensor()) return true;
    const Type& type = node->graph->value(id).type();
    const std::set<std::string> names = symbols_of(type);
    return type.dims && std::includes(known.begin(), known.end(), names.begin(), names.end());
  };
  const std::vector<Node*> nodes = graph.order();
  return std::any_of(nodes.begin(), nodes.end(), [&](const Node* node) {
    return node->schema->allocates_results(*node) ||
           !std::all_of(node->out.begin(), node->out.end(),
                        [&](ValueId id) { return follows(node, id); });
  });
}

Item item_of(const at::Tensor& tensor, uint64_t key) {
  if (!tensor.defined()) {
    Tensor item = Tensor::empty(DType::u64, {1});
    *item.as<uint64_t>() = key;
    return item;
  }
  check(tensor.is_cpu(), "a tensor of a graph whose sizes depend on data lies on {}, expected cpu",
        tensor.device().str());
  const auto held = std::make_shared<const at::Tensor>(tensor);
  Tensor item;
  item.dtype = dtype_of(tensor.scalar_type());
  item.sizes = tensor.sizes().vec();
  item.data = tensor.data_ptr();
  item.owner = held;
  return item;
}

at::Tensor tensor_of(const Item& item) {
  Tensor tensor = item.tensor();
  if (!tensor.owner) {  // memory that the run has borrowed
    const Tensor borrowed = std::exchange(tensor, Tensor::empty(tensor.dtype, tensor.sizes));
    std::memcpy(tensor.data, borrowed.data, borrowed.bytes());
  }
  return tensor_over(tensor.data, tensor.owner, tensor.sizes, scalar_type_of(tensor.dtype));
}

Stash stash_of(const ProgramHalves& halves, const std::vector<at::Tensor>& inputs,
               const std::vector<Item>& made, const std::vector<at::Tensor>& outputs,
               const Indices& read, size_t n_user_outputs) {
  using From = ProgramHalves::Given::From;
  Stash stash;
  std::set<size_t> from_inputs;
  for (size_t place = 0; place < halves.given.size(); ++place) {
    const auto& [from, i, element] = halves.given[place];
    Item& item = stash.items.emplace_back();
    Sizes& sizes = stash.sizes.emplace_back();
    if (from == From::input) {
      from_inputs.insert(i);
      sizes = inputs[i].defined() ? inputs[i].sizes().vec() : Sizes{1};
      continue;
    }
    if (from == From::size) {
      sizes = {made[i].tensor().as<int64_t>()[element]};
      item = shape_of(sizes);
      continue;
    }
    const size_t output = from == From::gradient ? halves.backward->gradient_inputs()[i] : i;
    if (made[output].is_tensor()) sizes = made[output].tensor().sizes;
    if (from == From::gradient) continue;
    if (i < n_user_outputs && contains(read, i)) {
      stash.outputs.push_back({i, outputs[i].storage(), place});
    } else if (i < n_user_outputs) {
      item = copied(outputs[i], stash.bytes);
    } else {
      item = made[i];
      if (item.is_tensor()) stash.bytes += item.tensor().bytes();
    }
  }
  stash.inputs.assign(from_inputs.begin(), from_inputs.end());
  return stash;
}

}  // namespace ort::bridge
