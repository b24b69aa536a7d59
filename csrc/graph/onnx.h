// ONNX files to graphs and back. The bytes are hostile until checked: every failure is one
// ort::Error that names what and where.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "csrc/graph/graph.h"

namespace ort {

// A graph from the bytes of a ModelProto without external data.
std::unique_ptr<Graph> read_onnx(std::span<const char> bytes, const OpSet& ops);
// A model's file, and external data in its folder or in that of the file that it links to. They are
// read; `map` maps them into memory instead, for files that nobody changes meanwhile.
std::unique_ptr<Graph> read_onnx_file(const std::string& path, const OpSet& ops, bool map = false);

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
