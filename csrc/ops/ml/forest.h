// Decision trees in the one form that kernels walk, whatever a file spells them in.
#pragma once

#include <map>

#include "csrc/ops/ml/attributes.h"

namespace ort::ml {

// What a node asks of its feature x. `missing`, added to one of these: NaN counts as yes.
enum class Test : int32_t { at_most, below, equal };
constexpr int32_t kMissing = 4;
constexpr int64_t kNodeColumns = 4;  // test, feature, where yes leads, where no leads

// Nodes by number; where a branch leads is another node, or ~leaf. A leaf has any number of
// (target, weight). Trees may share nodes.
class Forest {
 public:
  explicit Forest(size_t nodes) : splits(nodes), nodes_(nodes * kNodeColumns) {}
  // Node i, by ONNX's name of its mode: BRANCH_LEQ and the like without "BRANCH_".
  void set(size_t i, std::string_view mode, bool missing_is_yes, double split, int64_t feature,
           int32_t yes, int32_t no);
  // Node i asks whether x is one of `members`: a balanced tree of nodes, which finds the one that
  // x can be and then asks for it. NaN, above all of them, is asked for the last.
  void set_member(size_t i, std::vector<double> members, bool missing_is_yes, int64_t feature,
                  int32_t yes, int32_t no);
  // Refuses trees with a cycle.
  void check_acyclic() const;
  // The trees' sums for rows [N, F] of a floating dtype: [N, targets], in that dtype.
  Value applied(Value rows, const std::string& aggregate) const;

  std::vector<double> splits;
  std::vector<int32_t> roots;         // ~leaf where the tree is one
  std::vector<int32_t> leaves = {0};  // the first entry of each leaf, and the end
  std::vector<int32_t> targets;       // of each entry
  std::vector<double> weights;
  std::vector<double> base;  // of each target; empty: zeros
  int64_t n_targets = 0;

 private:
  size_t add();
  void put(size_t i, Test test, bool missing, double split, int64_t feature, int32_t yes,
           int32_t no);
  std::vector<int32_t> nodes_;
};

}  // namespace ort::ml
