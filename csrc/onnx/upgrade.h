// What older opsets spell otherwise. Called by read.cpp for each node of a file.
#pragma once

#include "csrc/graph/schema.h"

namespace ort {

// A node on its way from a file's opset to the newest.
struct OldNode {
  int opset;       // of its domain
  std::string op;  // may become another
  Graph* graph;
  std::vector<Value> in;
  Attrs attrs;
  Bodies bodies;
  size_t outputs;
  std::function<void(std::vector<Value>& out)> finish;  // what is made of its results
};

// Makes the node one of the newest opset; a difference in meaning that cannot be expressed is an
// error.
void upgrade(OldNode& node, const OpSet& ops);
bool has_upgrade(std::string_view op);  // whether there are rows for it

}  // namespace ort
