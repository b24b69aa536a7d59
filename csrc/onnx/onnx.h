// ONNX files to graphs and back. The bytes are hostile until checked: every failure is one
// ort::Error that names what and where.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "csrc/graph/graph.h"
#include "csrc/onnx/file.h"

namespace ort {

// What is read otherwise than the file has it.
struct ReadAs {
  std::map<std::string, int64_t> sizes, denoted;  // free sizes, by name and by denotation
  std::map<std::string, Tensor> initializers;     // in the place of the file's of that name
  std::set<std::string> external;                 // of those: the file must have them elsewhere
  std::map<std::string, Tensor> files;        // their bytes, in the place of all files beside it
  std::set<std::string> open;                 // initializers that a run is to be fed
  TensorAllocator allocate = &Tensor::empty;  // for what is copied out of the file
};

// What a file says of itself. A port has the file's names of sizes; what the file leaves out of an
// output is as it is inferred.
struct ModelHead {
  struct Port {
    std::string name;
    Type type;
  };
  int64_t ir_version = 0;
  std::optional<int64_t> version;
  std::string producer, domain, description, graph_name, graph_description;
  std::map<std::string, std::string> metadata;
  std::vector<Port> inputs, outputs;
  std::vector<Port> overridable;  // inputs that have an initializer
};

// A graph from the bytes of a ModelProto without external data.
std::unique_ptr<Graph> read_onnx(std::span<const char> bytes, const OpSet& ops,
                                 const ReadAs& as = {}, ModelHead* head = nullptr);
// A model's file, and external data in its folder or in that of the file that it links to. They are
// read; `map` maps them into memory instead, for files that nobody changes meanwhile.
std::unique_ptr<Graph> read_onnx_file(const std::string& path, const OpSet& ops, bool map = false,
                                      const ReadAs& as = {}, ModelHead* head = nullptr);

// standard: every op must be of ai.onnx. any: the domains ort and aten too, symbolic sizes as
// strings and each node's place and rule as its documentation: files to look at.
enum class Domains : uint8_t { standard, any };

// A ModelProto at the lowest opset that says the same, IR 13. Constants of `external_from`
// bytes or more go to `external_bytes` (null: all stay inside) under the name `external_name`.
std::string write_onnx(const Graph& graph, std::string* external_bytes = nullptr,
                       const std::string& external_name = "", size_t external_from = 1u << 20,
                       Domains domains = Domains::standard);
// Writes PATH, and the large weights to PATH.data where all weights together pass `inside_limit`
// bytes.
void write_onnx_file(const Graph& graph, const std::string& path, size_t inside_limit = 1u << 30,
                     Domains domains = Domains::standard);

}  // namespace ort
