// What a file says of its inputs and outputs, beside what is read and inferred.
#pragma once

#include "csrc/onnx/onnx.h"
#include "csrc/onnx/parse.h"

namespace ort {

// Kinds, dtypes and ranks, where both are known; sizes are hints. An optional stands for what it
// holds.
bool types_agree(const Type& declared, const Type& made);

// Adds an input to the head. Before IR 4 every initializer had to be an input, too, and none of
// them was for a run to give.
void describe_input(const RawGraph& raw, const RawValue& input, ModelHead& head);

// The type of an output as the file says it, with what it leaves open as it is inferred.
Type output_type(const RawValue& output, const Type& made);

// An output has the rank that is computed, as in onnxruntime, which tells of it too.
void check_declared(const RawValue& output, const Type& made);

}  // namespace ort
