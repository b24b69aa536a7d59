// What older opsets spell otherwise. Called by onnx_read.cpp for each node of a file.
#pragma once

#include "csrc/graph/schema.h"

namespace ort {

// Makes the inputs and attributes of a node of `opset` those of kOpset; a difference in meaning is
// an error.
void upgrade(const OpSchema& schema, int opset, Graph& graph, std::vector<Value>& in, Attrs& attrs);

}  // namespace ort
