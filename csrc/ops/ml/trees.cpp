// Ensembles of decision trees, in the three spellings of ai.onnx.ml, by one op of flattened trees.
#include <algorithm>
#include <array>

#include "csrc/ops/ml/listed_trees.h"
#include "csrc/ops/ml/scores.h"
#include "csrc/ops/ops.h"

namespace ort::ml {
namespace {

// --- TreeEnsembleClassifier and TreeEnsembleRegressor, opsets 1 to 5 ---

// Rows in float64 where parameters are.
Value rows_for(const OpCall& c) {
  const Value rows = rows_of(c.x());
  bool wide = false;
  for (const auto& [name, attr] : c.attrs())
    if (const auto* tensor = std::get_if<Tensor>(&attr)) wide |= tensor->dtype == DType::f64;
  return wide ? cast(rows, DType::f64) : rows;
}

// Sums of weights by class; the label is that of the largest, or the one that there is. Of two
// classes and weights of one alone, that sum is the score of the second class: a probability where
// no weight is negative.
Outputs classify_by_trees(const OpCall& c) {
  const Attrs& attrs = c.attrs();
  const std::string& transform = attrs.s("post_transform");
  const Tensor labels = labels_of(attrs, "classlabels_int64s", "classlabels_strings");
  ListedTrees listed{attrs, "class", labels.count()};
  Forest forest = listed.forest();
  const auto [least, most] = std::minmax_element(forest.targets.begin(), forest.targets.end());
  const bool single = labels.count() == 2 && least != forest.targets.end() && *least == *most;
  if (!single) {
    const Value sums = cast(forest.applied(rows_for(c), "SUM"), DType::f32);
    return {chosen(sums, labels), transformed_targets(sums, transform)};
  }
  if (forest.base.size() == 2) forest.base = {forest.base[static_cast<size_t>(*least)]};
  std::fill(forest.targets.begin(), forest.targets.end(), 0);
  forest.n_targets = 1;
  const bool certain = std::all_of(forest.weights.begin(), forest.weights.end(),
                                   [](double weight) { return weight >= 0; });
  const Value sums = cast(forest.applied(rows_for(c), "SUM"), DType::f32);
  const bool complement = certain && (transform == "NONE" || transform == "PROBIT");
  const Value second = complement ? sums - 0.5 : sums;
  return {chosen(concat({-second, second}, 1), labels), both_classes(sums, certain, transform)};
}

Outputs regress_by_trees(const OpCall& c) {
  const Attrs& attrs = c.attrs();
  const ListedTrees listed{attrs, "target", attrs.i("n_targets", 1)};
  check(listed.n_targets >= 1, "n_targets is {}, expected at least 1", listed.n_targets);
  const Value sums = listed.forest().applied(rows_for(c), attrs.s("aggregate_function"));
  return {transformed_targets(cast(sums, DType::f32), attrs.s("post_transform"))};
}

OpSchema& listed_trees(OpSchema& schema) {
  for (const char* name :
       {"nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_values",
        "nodes_values_as_tensor", "nodes_hitrates", "nodes_hitrates_as_tensor", "nodes_modes",
        "nodes_truenodeids", "nodes_falsenodeids", "nodes_missing_value_tracks_true", "base_values",
        "base_values_as_tensor"})
    schema.attr_optional(name);
  return schema.attr("post_transform", std::string("NONE")).not_differentiable();
}

// --- TreeEnsemble, opset 5 ---

constexpr std::array kModes = {"LEQ", "LT", "GTE", "GT", "EQ", "NEQ"};
constexpr int64_t kMember = 6;
constexpr std::array kAggregates = {"AVERAGE", "SUM", "MIN", "MAX"};
constexpr std::array kTransforms = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};

template <size_t n>
std::string named(const std::array<const char*, n>& names, int64_t i, std::string_view what) {
  check(i >= 0 && i < static_cast<int64_t>(n), "{} is {}, expected 0 to {}", what, i, n - 1);
  return names[static_cast<size_t>(i)];
}

const Tensor& tensor(const Attrs& attrs, std::string_view name) {
  const Attr* attr = attrs.find(name);
  check(attr && std::holds_alternative<Tensor>(*attr), "attribute '{}' is no tensor", name);
  return std::get<Tensor>(*attr);
}

std::vector<double> numbers(const Attrs& attrs, std::string_view name) {
  const Tensor& from = tensor(attrs, name);
  check(from.dtype != DType::string, "attribute '{}' has strings, expected numbers", name);
  std::vector<double> values;
  for (int64_t i = 0; i < from.count(); ++i) values.push_back(element_as_double(from, i));
  return values;
}

// Sets of members in the order of their nodes, each with a NaN at its end.
std::vector<std::vector<double>> members_of(const Attrs& attrs) {
  std::vector<std::vector<double>> sets;
  if (!attrs.has("membership_values")) return sets;
  std::vector<double> set;
  for (const double value : numbers(attrs, "membership_values")) {
    if (value == value)
      set.push_back(value);
    else
      sets.push_back(std::exchange(set, {}));
  }
  check(set.empty(), "membership_values end without a NaN");
  return sets;
}

struct Nodes {
  std::vector<double> splits, modes;
  const std::vector<int64_t>&features, &missing, &yes, &no, &yes_leaf, &no_leaf;

  explicit Nodes(const Attrs& attrs)
      : splits(numbers(attrs, "nodes_splits")),
        modes(numbers(attrs, "nodes_modes")),
        features(integers(attrs, "nodes_featureids")),
        missing(integers(attrs, "nodes_missing_value_tracks_true")),
        yes(integers(attrs, "nodes_truenodeids")),
        no(integers(attrs, "nodes_falsenodeids")),
        yes_leaf(integers(attrs, "nodes_trueleafs")),
        no_leaf(integers(attrs, "nodes_falseleafs")) {
    const size_t count = splits.size();
    check(count > 0 && count < INT32_MAX, "it has {} nodes", count);
    for (const auto* other : {&features, &yes, &no, &yes_leaf, &no_leaf, &missing})
      check(other->size() == count || (other == &missing && missing.empty()),
            "its lists of nodes have {} and {} elements, expected one length", count,
            other->size());
    check(modes.size() == count, "it has {} modes and {} splits", modes.size(), count);
    const DType dtype = tensor(attrs, "nodes_modes").dtype;
    check(!is_floating(dtype), "nodes_modes is {}, expected uint8", dtype);
  }
};

int32_t place(int64_t to, bool is_leaf, size_t nodes, size_t leaves) {
  const size_t count = is_leaf ? leaves : nodes;
  check(to >= 0 && to < static_cast<int64_t>(count), "a branch leads to {} {}, there are {}",
        is_leaf ? "leaf" : "node", to, count);
  return is_leaf ? ~static_cast<int32_t>(to) : static_cast<int32_t>(to);
}

void add_nodes(Forest& made, const Attrs& attrs, const Nodes& nodes, size_t leaves) {
  auto sets = members_of(attrs);
  size_t set = 0;
  const size_t count = nodes.splits.size();
  for (size_t i = 0; i < count; ++i) {
    const int32_t yes = place(nodes.yes[i], nodes.yes_leaf[i] != 0, count, leaves);
    const int32_t no = place(nodes.no[i], nodes.no_leaf[i] != 0, count, leaves);
    const bool missing = !nodes.missing.empty() && nodes.missing[i] != 0;
    const auto mode = static_cast<int64_t>(nodes.modes[i]);
    if (mode != kMember) {
      made.set(i, named(kModes, mode, "a mode"), missing, nodes.splits[i], nodes.features[i], yes,
               no);
      continue;
    }
    check(set < sets.size(), "membership_values have {} sets, it has more nodes of mode 6",
          sets.size());
    made.set_member(i, std::move(sets[set++]), missing, nodes.features[i], yes, no);
  }
  check(set == sets.size(), "membership_values have {} sets, it has {} nodes of mode 6",
        sets.size(), set);
}

void add_leaves(Forest& made, const Attrs& attrs) {
  const auto& targets = integers(attrs, "leaf_targetids");
  made.weights = numbers(attrs, "leaf_weights");
  check(targets.size() == made.weights.size() && targets.size() < INT32_MAX,
        "it has {} leaf_targetids and {} leaf_weights", targets.size(), made.weights.size());
  const bool given = attrs.has("n_targets");
  made.n_targets = given ? attrs.i("n_targets") : INT32_MAX;
  check(made.n_targets >= 1 && made.n_targets <= INT32_MAX, "it has {} targets", made.n_targets);
  for (const int64_t target : targets) {
    check(target >= 0 && target < made.n_targets, "leaf_targetids has {}, expected 0 to {}", target,
          made.n_targets - 1);
    made.targets.push_back(static_cast<int32_t>(target));
    made.leaves.push_back(static_cast<int32_t>(made.targets.size()));
  }
  if (!given && !targets.empty())
    made.n_targets = *std::max_element(made.targets.begin(), made.targets.end()) + int64_t{1};
}

Value ensemble(const OpCall& c) {
  const Attrs& attrs = c.attrs();
  const Nodes nodes(attrs);
  Forest made(nodes.splits.size());
  add_leaves(made, attrs);
  add_nodes(made, attrs, nodes, made.targets.size());
  for (const int64_t root : integers(attrs, "tree_roots"))
    made.roots.push_back(place(root, false, nodes.splits.size(), 0));
  made.check_acyclic();
  const std::string aggregate =
      named(kAggregates, attrs.i("aggregate_function"), "aggregate_function");
  const std::string transform = named(kTransforms, attrs.i("post_transform"), "post_transform");
  const Value sums = made.applied(rows_of(c.x()), aggregate);
  return cast(transformed_targets(sums, transform), c.x().dtype());
}

}  // namespace

static void register_trees(OpSet& ops) {
  OpSchema& classifier = ops.op("ai.onnx.ml::TreeEnsembleClassifier")
                             .in("X", kInputs)
                             .out("Y", kLabels, "T2")
                             .dtype_by("classlabels_strings")
                             .out("Z", bit(DType::f32), "Z")
                             .attr_optional("classlabels_int64s")
                             .attr_optional("classlabels_strings")
                             .defined_as(classify_by_trees);
  OpSchema& regressor = ops.op("ai.onnx.ml::TreeEnsembleRegressor")
                            .in("X", kInputs)
                            .out("Y", bit(DType::f32), "Y")
                            .attr("aggregate_function", std::string("SUM"))
                            .attr_optional("n_targets")
                            .defined_as(regress_by_trees);
  for (const char* name : {"ids", "nodeids", "treeids", "weights", "weights_as_tensor"}) {
    classifier.attr_optional(std::string("class_") + name);
    regressor.attr_optional(std::string("target_") + name);
  }
  listed_trees(classifier);
  listed_trees(regressor);
  OpSchema& trees = ops.op("ai.onnx.ml::TreeEnsemble")
                        .in("X", bit(DType::f32) | bit(DType::f64) | bit(DType::f16))
                        .out("Y")
                        .attr("aggregate_function", int64_t{1})
                        .attr("post_transform", int64_t{0})
                        .attr_optional("n_targets")
                        .attr_optional("nodes_hitrates")
                        .attr_optional("nodes_missing_value_tracks_true")
                        .attr_optional("membership_values")
                        .since(5)
                        .not_differentiable()
                        .defined_as(ensemble);
  for (const char* name : {"tree_roots", "nodes_modes", "nodes_splits", "nodes_featureids",
                           "nodes_truenodeids", "nodes_falsenodeids", "nodes_trueleafs",
                           "nodes_falseleafs", "leaf_targetids", "leaf_weights"})
    trees.attr_required(name);
}

const Family<OpSet> kTreesOps("ops", "ml/trees", register_trees);

}  // namespace ort::ml
