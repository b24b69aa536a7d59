// The text of a graph: print(graph) and parse(text) are inverses.
#pragma once

#include <memory>
#include <string>

#include "csrc/graph/graph.h"

namespace ort {

// float32[s0, 768], int64[], bool[..] (rank not known), seq(float32[..]), opaque
Type parse_type(std::string_view text);

std::string print(const Graph& graph);
std::unique_ptr<Graph> parse(std::string_view text, const OpSet& ops);

}  // namespace ort
