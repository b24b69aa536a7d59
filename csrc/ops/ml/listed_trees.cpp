// From lists of nodes, each of a tree and a number in it, to nodes by position.
#include "csrc/ops/ml/listed_trees.h"

#include <algorithm>
#include <numeric>

namespace ort::ml {
namespace {

// Which position in the lists a node of a tree has. Files list them in order, so that a guess from
// the node before is right.
class Positions {
 public:
  Positions(const std::vector<int64_t>& trees, const std::vector<int64_t>& numbers)
      : trees_(trees), numbers_(numbers), order_(trees.size()) {
    std::iota(order_.begin(), order_.end(), size_t{0});
    const auto less = [this](size_t a, size_t b) { return key(a) < key(b); };
    if (!std::is_sorted(order_.begin(), order_.end(), less))
      std::sort(order_.begin(), order_.end(), less);
    for (size_t i = 1; i < order_.size(); ++i)
      check(key(order_[i - 1]) != key(order_[i]), "node {} of tree {} is listed twice",
            numbers[order_[i]], trees[order_[i]]);
  }

  // `what` reads it.
  size_t at(int64_t tree, int64_t number, std::string_view what) {
    const std::pair wanted{tree, number};
    if (latest_ < order_.size() && key(order_[latest_]) == wanted) return order_[latest_];
    if (latest_ + 1 < order_.size() && key(order_[latest_ + 1]) == wanted) return order_[++latest_];
    const auto found =
        std::lower_bound(order_.begin(), order_.end(), wanted,
                         [this](size_t i, const auto& other) { return key(i) < other; });
    check(found != order_.end() && key(*found) == wanted,
          "{} leads to node {} of tree {}, "
          "which is not there",
          what, number, tree);
    latest_ = static_cast<size_t>(found - order_.begin());
    return *found;
  }

 private:
  std::pair<int64_t, int64_t> key(size_t i) const { return {trees_[i], numbers_[i]}; }

  const std::vector<int64_t>& trees_;
  const std::vector<int64_t>& numbers_;
  std::vector<size_t> order_;
  size_t latest_ = 0;
};

constexpr int32_t kNoLeaf = 0;  // leaves are below zero

class Builder {
 public:
  explicit Builder(const ListedTrees& listed)
      : listed_(listed),
        trees_(ints("nodes_treeids")),
        modes_(texts(listed.attrs, "nodes_modes")),
        yes_(ints("nodes_truenodeids")),
        no_(ints("nodes_falsenodeids")),
        features_(ints("nodes_featureids")),
        missing_(ints("nodes_missing_value_tracks_true")),
        values_(listed.numbers("nodes_values")),
        positions_(trees_, checked(ints("nodes_nodeids"), "nodes_nodeids")) {
    checked(modes_, "nodes_modes");
    checked(yes_, "nodes_truenodeids");
    checked(no_, "nodes_falsenodeids");
    checked(features_, "nodes_featureids");
    checked(values_, "nodes_values");
    if (!missing_.empty()) checked(missing_, "nodes_missing_value_tracks_true");
    check(!trees_.empty() && trees_.size() < INT32_MAX, "it has {} nodes", trees_.size());
  }

  Forest forest() {
    Forest made(number_places());
    made.n_targets = listed_.n_targets;
    add_leaves(made);
    std::vector<bool> reached(trees_.size());
    for (size_t i = 0; i < trees_.size(); ++i)
      if (places_[i] >= 0) add_branch(made, i, reached);
    add_roots(made, reached);
    made.check_acyclic();
    return made;
  }

 private:
  const std::vector<int64_t>& ints(const char* name) const { return integers(listed_.attrs, name); }
  template <class T>
  const std::vector<T>& checked(const std::vector<T>& of, const char* name) const {
    check(of.size() == trees_.size(), "it has {} {} and {} nodes_treeids", of.size(), name,
          trees_.size());
    return of;
  }

  // Branches and leaves are numbered apart: the number of branches.
  size_t number_places() {
    int32_t branches = 0, leaves = 0;
    for (const std::string& mode : modes_)
      places_.push_back(mode == "LEAF" ? ~leaves++ : branches++);
    leaves_ = static_cast<size_t>(leaves);
    return static_cast<size_t>(branches);
  }

  void add_branch(Forest& made, size_t i, std::vector<bool>& reached) {
    constexpr std::string_view kBranch = "BRANCH_";
    std::string_view mode = modes_[i];
    if (mode.starts_with(kBranch)) mode.remove_prefix(kBranch.size());
    const auto to = [&](int64_t number) {
      const size_t found = positions_.at(trees_[i], number, "a branch");
      reached[found] = true;
      return places_[found];
    };
    const int32_t yes = to(yes_[i]), no = to(no_[i]);
    made.set(static_cast<size_t>(places_[i]), mode, !missing_.empty() && missing_[i] != 0,
             values_[i], features_[i], yes, no);
  }

  // A tree's root is the one node that no other one leads to.
  void add_roots(Forest& made, const std::vector<bool>& reached) {
    std::map<int64_t, size_t> roots;
    constexpr size_t kNone = SIZE_MAX;
    for (size_t i = 0; i < trees_.size(); ++i) {
      size_t& root = roots.emplace(trees_[i], kNone).first->second;
      if (reached[i]) continue;
      check(root == kNone, "position {} and position {} of tree {} are both a root", root, i,
            trees_[i]);
      root = i;
      made.roots.push_back(places_[i]);
    }
    for (const auto& [tree, root] : roots)
      check(root != kNone, "its trees have a cycle: every node of tree {} is below another one",
            tree);
  }

  // Entries by leaf. Those of nodes that are no leaves are never read. Of one target a leaf has one
  // entry, its first: skl2onnx writes it as often as the model has classes.
  void add_leaves(Forest& made) {
    const auto named = [&](const char* what) { return listed_.kind + "_" + what; };
    const auto& ids = integers(listed_.attrs, named("ids"));
    const auto& trees = integers(listed_.attrs, named("treeids"));
    const auto& numbers = integers(listed_.attrs, named("nodeids"));
    const std::vector<double> weights = listed_.numbers(named("weights"));
    check(ids.size() == trees.size() && ids.size() == numbers.size() &&
              ids.size() == weights.size() && ids.size() < INT32_MAX,
          "it has {} {}, {} {}, {} {} and {} {}, expected the same of each", ids.size(),
          named("ids"), trees.size(), named("treeids"), numbers.size(), named("nodeids"),
          weights.size(), named("weights"));
    std::vector<int32_t> places;
    made.leaves.assign(leaves_ + 1, 0);
    for (size_t k = 0; k < ids.size(); ++k) {
      check(ids[k] >= 0 && ids[k] < listed_.n_targets, "{} has {}, expected 0 to {}", named("ids"),
            ids[k], listed_.n_targets - 1);
      places.push_back(places_[positions_.at(trees[k], numbers[k], named("nodeids"))]);
      if (places[k] >= 0) continue;
      int32_t& entries = made.leaves[static_cast<size_t>(~places[k]) + 1];
      if (listed_.n_targets == 1 && entries == 1)
        places[k] = kNoLeaf;
      else
        ++entries;
    }
    std::partial_sum(made.leaves.begin(), made.leaves.end(), made.leaves.begin());
    made.targets.resize(static_cast<size_t>(made.leaves.back()));
    made.weights.resize(made.targets.size());
    std::vector<int32_t> next(made.leaves);
    for (size_t k = 0; k < ids.size(); ++k) {
      if (places[k] >= 0) continue;
      const auto at = static_cast<size_t>(next[static_cast<size_t>(~places[k])]++);
      made.targets[at] = static_cast<int32_t>(ids[k]);
      made.weights[at] = weights[k];
    }
  }

  const ListedTrees& listed_;
  const std::vector<int64_t>& trees_;
  const std::vector<std::string>& modes_;
  const std::vector<int64_t>&yes_, &no_, &features_, &missing_;
  std::vector<double> values_;
  Positions positions_;
  std::vector<int32_t> places_;  // of each node: a branch, or ~leaf
  size_t leaves_ = 0;
};

}  // namespace

std::vector<double> ListedTrees::numbers(const std::string& name) const {
  const Attr* attr = attrs.find(name + "_as_tensor");
  if (!attr) return floats(attrs, name);
  check(floats(attrs, name).empty(), "it has {} and {}_as_tensor, expected one of the two", name,
        name);
  const Tensor& tensor = std::get<Tensor>(*attr);
  check(is_floating(tensor.dtype), "{}_as_tensor is {}, expected floats", name, tensor.dtype);
  std::vector<double> values(static_cast<size_t>(tensor.count()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = element_as_double(tensor, static_cast<int64_t>(i));
  return values;
}

Forest ListedTrees::forest() const {
  Forest made = Builder(*this).forest();
  made.base = numbers("base_values");
  return made;
}

}  // namespace ort::ml
