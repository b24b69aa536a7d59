// Which opsets a graph needs: the versions of ONNX's ops, and the lowest that take every node.
#pragma once

#include "csrc/graph/schema.h"

namespace ort {

extern const char* const kOnnxVersions;  // versions.cpp says how it is written

// One version of an op of ONNX's.
struct OnnxVersion {
  int opset = 0;
  size_t inputs = 0, outputs = 0;
  TypeSet types = 0;
  std::vector<std::string> attrs;
  bool has_attr(std::string_view name) const;
};

// The version that `opset` of its domain has of an op, whose name is qualified; null where the op
// is not ONNX's, or came later.
const OnnxVersion* onnx_version(std::string_view op, int opset);

// For each domain of its nodes, those of bodies too, the lowest opset in which they mean what they
// mean here; ai.onnx is always among them.
Opsets lowest_opsets(const Graph& graph);

}  // namespace ort
