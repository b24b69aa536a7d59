// Writing every stage of a build into a folder, for `python -m ortmodule.view`.
#pragma once

#include <filesystem>
#include <string>

#include "csrc/core/mutex.h"
#include "csrc/plan/lowered_graph.h"
#include "csrc/plan/training_plan.h"

namespace ort {

// One build: <folder>/build<k>/<nn>_<stage>.txt and .onnx, and plan<n>.json for each set of sizes.
// A program inside of it, of a body or of a stage, is a build too: build<k>.lead, build<k>.rest.
// The first build that a process makes in a folder removes the files of runs before it, which a
// manifest there lists, and nothing else.
class Dump {
 public:
  // `folder` empty: nothing is written. `part`: the name of a build inside another; empty: its own.
  Dump(const std::string& folder, const std::string& part);
  std::string name() const { return place_.filename().string(); }
  bool on() const { return !place_.empty(); }
  void stage(const std::string& name, const Graph& graph);
  void plan(const LoweredGraph& lowered, const TrainingPlan& plan, const Symbols& symbols);

 private:
  void note(const std::string& name);  // in the manifest, before it is written
  void write(const std::string& name, const std::string& text);

  std::filesystem::path place_;
  Mutex mutex_;  // plans of one program are made by several threads
  int stages_ = 0, plans_ = 0;
};

}  // namespace ort
