// An ONNX file's messages as they stand: names are strings, nothing is resolved.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "csrc/graph/domains.h"
#include "csrc/graph/graph.h"
#include "csrc/onnx/onnx.h"
#include "csrc/onnx/tensor.h"

namespace ort {

struct RawGraph;

struct RawNode {
  std::string op, domain, overload, name;
  std::vector<std::string> in, out;
  Attrs attrs;
  std::vector<std::pair<std::string, std::shared_ptr<RawGraph>>> graphs;
  // Attributes that are the function's around it: the node's name for it, the function's.
  std::vector<std::pair<std::string, std::string>> refs;
  // "node 'a' (Add)", for messages.
  std::string text() const { return format("node '{}' ({})", name, op); }
};

struct RawValue {
  std::string name;
  Type type;
  bool typed = false;
};

struct RawGraph {
  std::vector<RawNode> nodes;
  std::vector<RawValue> inputs, outputs;
  std::vector<RawTensor> initializers;
  std::vector<RawSparseTensor> sparse_initializers;
  std::string name, description;
};

// A function of the model: nodes that stand in its place.
struct RawFunction {
  std::string name, domain, overload;
  std::vector<std::string> in, out;
  std::vector<std::string> attrs;  // that a call gives, or leaves out
  RawNode defaults;                // attributes with values of their own
  std::vector<RawNode> nodes;
  Opsets opsets;  // what it leaves out is the model's
};

constexpr size_t kMaxNodes = 1000000;

// How much a model may have: a graph inside another one is inferred again with it, so each level
// counts its nodes thrice.
class Budget {
 public:
  void count(const RawNode& node, int depth);
  void expect(size_t nodes) const;  // refuses what the nodes counted leave no room for

 private:
  size_t nodes_ = 0, edges_ = 0;
};

struct RawModel {
  Opsets opsets;
  RawGraph graph;
  std::map<std::string, RawFunction> functions;  // by function_key
  Budget spent;
  ModelHead head;  // without its ports
};

// Of a node's op or a function: no two functions of a model have the same.
std::string function_key(const std::string& domain, const std::string& name,
                         const std::string& overload);

constexpr int kMaxGraphDepth = 12;  // of graphs in graphs

// Sizes without a usable name are fresh ones of `graph`.
RawModel parse_model(std::span<const char> bytes, TensorReader& tensors, Graph& graph,
                     const ReadAs& as);

}  // namespace ort
