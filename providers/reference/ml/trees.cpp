// Ensembles of trees: each row down each tree, weights added in double.
#include <cmath>
#include <limits>

#include "csrc/ops/ml/forest.h"
#include "providers/reference/reference.h"

namespace ort::reference {
namespace {

using ml::Test;

const Tensor& tree_tensor(const KernelCall& c, std::string_view name) {
  return std::get<Tensor>(*c.attrs().find(name));
}

bool answer(int32_t test, double x, double split) {
  if (std::isnan(x)) return (test & ml::kMissing) != 0;
  const auto asks = static_cast<Test>(test & ~ml::kMissing);
  return asks == Test::at_most ? x <= split : asks == Test::below ? x < split : x == split;
}

// The leaf that the row comes to.
int32_t leaf_of(const Tensor& nodes, const Tensor& splits, const In<double>& x, int64_t row,
                int32_t at) {
  while (at >= 0) {
    const int32_t* node = nodes.as<int32_t>() + at * ml::kNodeColumns;
    at = answer(node[0], x[row + node[1]], element_as_double(splits, at)) ? node[2] : node[3];
  }
  return ~at;
}

double joined(const std::string& aggregate, double sum, double weight) {
  if (std::isnan(sum)) return weight;  // the first one
  if (aggregate == "MIN") return weight < sum ? weight : sum;
  if (aggregate == "MAX") return weight > sum ? weight : sum;
  return sum + weight;
}

void tree_ensemble(const KernelCall& c) {
  const Tensor &nodes = tree_tensor(c, "nodes"), &splits = tree_tensor(c, "splits");
  const Tensor &roots = tree_tensor(c, "roots"), &leaves = tree_tensor(c, "leaves");
  const Tensor &targets = tree_tensor(c, "targets"), &weights = tree_tensor(c, "weights");
  const std::string& aggregate = c.attrs().s("aggregate");
  const auto n = static_cast<size_t>(c.attrs().i("n_targets"));
  const In<double> x = c.in<double>(0);
  const int64_t rows = c.sizes()[0], width = c.sizes()[1];
  std::vector<double> y;
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<double> sums(n, std::numeric_limits<double>::quiet_NaN());
    for (int64_t tree = 0; tree < roots.count(); ++tree) {
      const int32_t leaf = leaf_of(nodes, splits, x, row * width, roots.as<int32_t>()[tree]);
      for (int32_t k = leaves.as<int32_t>()[leaf]; k < leaves.as<int32_t>()[leaf + 1]; ++k) {
        double& sum = sums[static_cast<size_t>(targets.as<int32_t>()[k])];
        sum = joined(aggregate, sum, element_as_double(weights, k));
      }
    }
    for (size_t k = 0; k < n; ++k) {
      double sum = std::isnan(sums[k]) ? 0.0 : sums[k];
      if (aggregate == "AVERAGE") sum /= static_cast<double>(roots.count());
      if (c.attrs().has("base"))
        sum += element_as_double(tree_tensor(c, "base"), static_cast<int64_t>(k));
      y.push_back(sum);
    }
  }
  c.write(0, y);
}

}  // namespace

static void register_reference_trees(KernelTable& table) {
  add(table, "ort::TreeEnsemble", kFloating, tree_ensemble);
}

const Family<KernelTable> kTreesKernels("reference", "ml/trees", register_reference_trees);

}  // namespace ort::reference
