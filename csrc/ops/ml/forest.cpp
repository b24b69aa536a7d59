// The flattened ensemble and the op that has it.
#include "csrc/ops/ml/forest.h"

#include <algorithm>
#include <limits>

#include "csrc/ops/ops.h"

namespace ort::ml {
namespace {

constexpr double kSteps = 16;  // down a tree, about

}  // namespace

void Forest::put(size_t i, Test test, bool missing, double split, int64_t feature, int32_t yes,
                 int32_t no) {
  splits[i] = split;
  int32_t* node = nodes_.data() + i * kNodeColumns;
  node[0] = static_cast<int32_t>(test) + (missing ? kMissing : 0);
  node[1] = static_cast<int32_t>(feature);
  node[2] = yes;
  node[3] = no;
}

// What asks for more is the contrary of a test that asks for less: NaN then goes the other way.
void Forest::set(size_t i, std::string_view mode, bool missing_is_yes, double split,
                 int64_t feature, int32_t yes, int32_t no) {
  check(feature >= 0 && feature < (int64_t{1} << 28), "node {} reads feature {}", i, feature);
  if (mode == "LEQ") return put(i, Test::at_most, missing_is_yes, split, feature, yes, no);
  if (mode == "LT") return put(i, Test::below, missing_is_yes, split, feature, yes, no);
  if (mode == "GT") return put(i, Test::at_most, !missing_is_yes, split, feature, no, yes);
  if (mode == "GTE") return put(i, Test::below, !missing_is_yes, split, feature, no, yes);
  if (mode == "EQ") return put(i, Test::equal, missing_is_yes, split, feature, yes, no);
  check(mode == "NEQ", "mode of node {} is '{}', expected LEAF or BRANCH_LEQ, LT, GTE, GT, EQ, NEQ",
        i, mode);
  put(i, Test::equal, false, split, feature, no, yes);  // NaN is unlike every number
}

size_t Forest::add() {
  check(splits.size() < INT32_MAX, "it has {} nodes", splits.size());
  splits.emplace_back();
  nodes_.resize(nodes_.size() + kNodeColumns);
  return splits.size() - 1;
}

void Forest::set_member(size_t i, std::vector<double> members, bool missing_is_yes, int64_t feature,
                        int32_t yes, int32_t no) {
  if (members.empty()) members.push_back(std::numeric_limits<double>::quiet_NaN());
  std::sort(members.begin(), members.end());
  members.erase(std::unique(members.begin(), members.end()), members.end());
  struct Part {
    size_t node, begin, end;
  };
  std::vector<Part> parts = {{i, 0, members.size()}};
  while (!parts.empty()) {
    const auto [node, begin, end] = parts.back();
    parts.pop_back();
    if (end - begin == 1) {
      set(node, "EQ", missing_is_yes, members[begin], feature, yes, no);
      continue;
    }
    const size_t middle = begin + (end - begin) / 2, below = add(), above = add();
    set(node, "LEQ", false, members[middle - 1], feature, static_cast<int32_t>(below),
        static_cast<int32_t>(above));
    parts.push_back({below, begin, middle});
    parts.push_back({above, middle, end});
  }
}

void Forest::check_acyclic() const {
  enum : uint8_t { unseen, open, done };
  std::vector<uint8_t> state(splits.size(), unseen);
  std::vector<int32_t> path;
  for (const int32_t root : roots) {
    if (root >= 0) path.push_back(root);
    while (!path.empty()) {
      const auto at = static_cast<size_t>(path.back());
      const bool first = state[at] == unseen;
      if (!first) path.pop_back();
      if (state[at] != done) state[at] = first ? open : done;
      if (!first) continue;
      for (const size_t branch : {2, 3}) {
        const int32_t to = nodes_[at * kNodeColumns + branch];
        if (to < 0 || state[static_cast<size_t>(to)] == done) continue;
        check(state[static_cast<size_t>(to)] != open,
              "its trees have a cycle: node {} leads back to node {}", at, to);
        path.push_back(to);
      }
    }
  }
}

Value Forest::applied(Value rows, const std::string& aggregate) const {
  check(n_targets >= 1, "it has {} targets", n_targets);
  const DType dtype = rows.dtype();
  const auto count = [](const auto& of) { return static_cast<int64_t>(of.size()); };
  const auto indices = [&](const std::vector<int32_t>& of) {
    return copied(of, DType::i32, {count(of)});
  };
  Attrs attrs{{"nodes", copied(nodes_, DType::i32, {count(splits), kNodeColumns})},
              {"splits", tensor_of(splits, {count(splits)}, dtype)},
              {"roots", indices(roots)},
              {"leaves", indices(leaves)},
              {"targets", indices(targets)},
              {"weights", tensor_of(weights, {count(weights)}, dtype)},
              {"n_targets", n_targets},
              {"aggregate", aggregate}};
  if (!base.empty()) {
    check(count(base) == n_targets, "it has {} base values, expected {}", base.size(), n_targets);
    attrs.set("base", tensor_of(base, {n_targets}, dtype));
  }
  return rows.graph->emit1("ort::TreeEnsemble", {rows}, std::move(attrs));
}

namespace {

const Tensor& packed_tensor(const Attrs& attrs, std::string_view name) {
  return std::get<Tensor>(*attrs.find(name));
}

void infer_trees(InferContext& c) {
  const std::string& aggregate = c.attrs().s("aggregate");
  c.require(
      aggregate == "SUM" || aggregate == "AVERAGE" || aggregate == "MIN" || aggregate == "MAX",
      "aggregate is '{}', expected SUM, AVERAGE, MIN or MAX", aggregate);
  if (!c.ranked(0)) return c.out(0, c.dtype(), std::nullopt);
  c.require(c.rank() == 2, "X has shape {}, expected [N, F]", c.dims());
  const Tensor& nodes = packed_tensor(c.attrs(), "nodes");
  int32_t most = -1;
  for (int64_t i = 0; i < nodes.sizes[0]; ++i)
    most = std::max(most, nodes.as<int32_t>()[i * kNodeColumns + 1]);
  c.assume(at_least(c.dims()[1], Dim(most + 1)), "features that its trees read");
  c.out(0, c.dtype(), Dims{c.dims()[0], Dim(c.attrs().i("n_targets"))});
}

double steps(const Sized& c) {
  const double trees = static_cast<double>(packed_tensor(c.attrs(), "roots").count());
  return c.ranked(0) ? c.size(0, 0) * trees * kSteps : c.x(0);
}

}  // namespace

static void register_forest(OpSet& ops) {
  ops.op("ort::TreeEnsemble")
      .in("X", kFloating)
      .out("Y")
      .computes_in(DType::f32)
      .attr_required("nodes")
      .attr_required("splits")
      .attr_required("roots")
      .attr_required("leaves")
      .attr_required("targets")
      .attr_required("weights")
      .attr_required("n_targets")
      .attr_required("aggregate")
      .attr_optional("base")
      .cost(steps)
      .shape(infer_trees)
      .not_differentiable();
}

const Family<OpSet> kForestOps("ops", "ml/forest", register_forest);

}  // namespace ort::ml
