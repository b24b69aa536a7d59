// Autograd nodes for every torch that we build for; nodes.cpp and providers/aten make theirs so.
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <type_traits>

namespace ort::bridge {

// Up to some version after 2.11 torch holds its nodes by shared_ptr, later by intrusive_ptr.
template <class T, class... Args>
auto make_node(const Args&... args) {
  using Held = decltype(torch::autograd::Edge::function);
  if constexpr (std::is_same_v<Held, std::shared_ptr<torch::autograd::Node>>)
    return std::shared_ptr<T>(new T(args...), [](auto* node) { deleteNode(node); });
  else
    return c10::make_intrusive<T>(args...);
}

}  // namespace ort::bridge
