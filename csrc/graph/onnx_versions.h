// Which opset a graph needs: the versions of ONNX's ops, and the lowest that takes every node.
#pragma once

#include "csrc/graph/schema.h"

namespace ort {

extern const char* const kOnnxVersions;  // onnx_versions.cpp says how it is written

// One version of an op of ai.onnx.
struct OnnxVersion {
  int opset = 0;
  size_t inputs = 0, outputs = 0;
  TypeSet types = 0;
  std::vector<std::string> attrs;
  bool has_attr(std::string_view name) const;
};

// The version that `opset` has of an op; null where the op is not known, or came later.
const OnnxVersion* onnx_version(std::string_view op, int opset);

// The lowest opset in which the nodes of ai.onnx, those of bodies too, mean what they mean here.
int lowest_opset(const Graph& graph);

}  // namespace ort
