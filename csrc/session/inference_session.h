// Inference of one graph: weights are ours, plans are kept for each set of input sizes.
#pragma once

#include <map>

#include "csrc/session/program.h"

namespace ort {

class InferenceSession {
 public:
  InferenceSession(const Graph& graph, const CompileOptions& options);

  struct Port {
    std::string name;
    Type type;
  };
  const std::vector<Port>& inputs() const { return inputs_; }
  const std::vector<Port>& outputs() const { return outputs_; }

  // The named outputs, in the order asked; all of them when none is named. Thread-safe.
  std::vector<Tensor> run(const std::vector<std::string>& names,
                          const std::map<std::string, Tensor>& feed);
  // Steps by provider of the plan used last.
  std::map<std::string, int> providers();

 private:
  std::vector<const Tensor*> order_feed(const std::map<std::string, Tensor>& feed) const;
  std::vector<size_t> order_names(const std::vector<std::string>& names) const;

  std::vector<Port> inputs_, outputs_;
  Program program_;
};

}  // namespace ort
