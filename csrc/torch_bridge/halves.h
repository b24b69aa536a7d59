// Forward and backward of a graph whose sizes depend on data, as two programs.
#pragma once

#include <memory>
#include <vector>

#include "csrc/session/program.h"
#include "csrc/torch_bridge/history.h"

namespace ort::bridge {

struct Shared;

// What the backward is given, by where a call has it.
struct Given {
  enum class From : uint8_t {
    input,     // of the forward
    output,    // of the forward
    size,      // an element of an output of the forward, as a size
    gradient,  // of `defined`
  } from;
  size_t index;
  size_t element = 0;
};

struct StagedHalves {
  std::shared_ptr<Program> forward;  // outputs: the capture's, then those for the backward alone
  std::shared_ptr<Program> backward;
  std::vector<Given> given;    // by input of the backward
  Indices defined;             // outputs of the capture whose gradient the backward reads
  std::vector<int> gradients;  // for each of wrt: the backward's output, or -1
};

// Of the capture, for the gradients of all its outputs. What the backward reads is kept. Throws
// where the engine has no such backward.
std::shared_ptr<const StagedHalves> halves_of(const Shared& shared);

}  // namespace ort::bridge
