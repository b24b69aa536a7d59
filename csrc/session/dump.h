// Writing every stage of a build into a folder, for `python -m ortmodule.view`.
#pragma once

#include <filesystem>
#include <mutex>
#include <string>

#include "csrc/plan/layout.h"
#include "csrc/plan/training_plan.h"

namespace ort {

// One build: <folder>/build<k>/<nn>_<stage>.txt and .onnx, and plan<n>.json for each set of sizes.
// The first build that a process makes in a folder removes the files of runs before it, which a
// manifest there lists, and nothing else.
class Dump {
 public:
  explicit Dump(const std::string& folder);  // empty: nothing is written
  bool on() const { return !place_.empty(); }
  void stage(const std::string& name, const Graph& graph);
  void plan(const Layout& layout, const TrainingPlan& plan, const Symbols& symbols);

 private:
  void note(const std::string& name);  // in the manifest, before it is written
  void write(const std::string& name, const std::string& text);

  std::filesystem::path place_;
  std::mutex mutex_;  // plans of one program are made by several threads
  int stages_ = 0, plans_ = 0;
};

}  // namespace ort
