// Programs by what a backward wants of them, and what is derived from one.
#include "csrc/torch_bridge/captured_state.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <unordered_map>

#include "csrc/plan/symbols.h"
#include "csrc/torch_bridge/autograd/accumulated.h"
#include "csrc/torch_bridge/staged.h"

namespace ort::bridge {
size_t Planned::segment_of(int output) const {
  const size_t gradient = static_cast<size_t>(output) - program->n_outputs();
  const size_t last = plan->segment_ends.size() - 1;
  return std::min(last, std::max(plan->output_segments[static_cast<size_t>(output)],
                                 static_cast<size_t>(program->gradient_segments()[gradient])));
}

std::shared_ptr<Program> CapturedState::program(const Wanted& wanted,
                                                const std::vector<Sizes>& sizes) {
  const auto symbols = [&] { return solve_symbols(*graph, sizes, sizes.size()); };
  const bool by_sizes = options.memory_budget && !is_staged();
  return programs.find({wanted, by_sizes ? symbols() : Symbols{}},
                       [&] { return compile(wanted, symbols()); });
}

std::shared_ptr<Program> CapturedState::compile(const Wanted& wanted, const Symbols& symbols) {
  Indices defined = wanted.defined;
  const auto rank = [&](size_t output) {
    return std::find(topology.order.begin(), topology.order.end(), output);
  };
  if (!wanted.cuts.empty())  // the order in which their gradients come
    std::sort(defined.begin(), defined.end(),
              [&](size_t a, size_t b) { return rank(a) < rank(b); });
  const Indices shared = history.saved_outputs(defined);
  grad::StashOptions stash{symbols, {}, {}, {shared.begin(), shared.end()}, {}};
  for (const ReadThere& written : reads_there(defined)) {
    stash.shared.insert(written.output);
    stash.written.insert(written.output);
  }
  for (size_t i = 0; i < graph->inputs().size(); ++i)
    if (!history.saves_input(i, defined)) stash.copied.insert(graph->inputs()[i]);
  const bool in_stages = !defined.empty() && is_staged();
  check(
      !in_stages || !wrt.empty(),
      "an output requires a gradient but reaches no input that does, in a graph whose sizes depend "
      "on data");
  return std::make_shared<Program>(*graph, options, defined.empty() ? Indices{} : wrt, defined,
                                   stash, wanted.cuts, in_stages);
}

at::Tensor CapturedState::in_memory_order(size_t output, const at::Tensor& gradient) const {
  const auto found = orders.find(output);
  if (found == orders.end()) return gradient;
  return gradient.permute(std::vector<int64_t>(found->second.begin(), found->second.end()));
}

at::Tensor CapturedState::in_tensor_order(size_t output, const at::Tensor& gradient) const {
  const auto found = orders.find(output);
  if (found == orders.end()) return gradient;
  std::vector<int64_t> inverse(found->second.size());
  for (size_t k = 0; k < inverse.size(); ++k) inverse[found->second[k]] = static_cast<int64_t>(k);
  return gradient.permute(inverse);
}

std::vector<CapturedState::ReadThere> CapturedState::reads_there(const Indices& by_outputs) const {
  std::vector<ReadThere> found;
  for (const ReadThere& written : read_there)
    if (history.known && history.saves_input(written.input, by_outputs)) found.push_back(written);
  return found;
}

bool CapturedState::may_run_again() {
  std::lock_guard lock(mutex);
  const bool unsettled = !confirmed || reruns > 0 || varied;
  return differentiable || (unsettled && topology.order.size() > 1);
}

bool CapturedState::is_staged() {
  asked_.call([&] {
    staged_ = may_be_staged(*graph) &&
              programs.find({{}, {}}, [&] { return compile({}, {}); })->is_staged();
  });
  return staged_;
}

// What the program gives no gradient comes last. Of one segment the parts are handed over as eager
// accumulates: where its order goes from one group to another and back, a group has several.
std::shared_ptr<const std::vector<Share>> CapturedState::parts(const Planned& planned) {
  std::lock_guard lock(mutex);
  if (divided_.lock() == planned.plan) return parts_;
  struct Member {
    size_t segment, rank, group, w;
  };
  std::vector<Member> members;
  std::unordered_map<size_t, size_t> ranks;  // by graph input
  for (const Accumulated& leaf : history.accumulated) ranks.try_emplace(leaf.input, ranks.size());
  const auto rank = [&](size_t w) {
    const auto found = ranks.find(wrt[w]);
    return found == ranks.end() ? ranks.size() : found->second;
  };
  for (size_t g = 0; g < topology.groups.size(); ++g)
    for (const size_t w : topology.groups[g].wrt) {
      const int output = planned.program->gradient_outputs()[w];
      const size_t last = planned.plan->segment_ends.size() - 1;
      members.push_back({output < 0 ? last : planned.segment_of(output), rank(w), g, w});
    }
  const auto when = [](const Member& m) { return std::tuple(m.segment, m.rank, m.group, m.w); };
  std::sort(members.begin(), members.end(),
            [&](const Member& a, const Member& b) { return when(a) < when(b); });
  std::vector<Share> parts;
  for (const auto& [segment, rank, group, w] : members) {
    if (parts.empty() || parts.back().segment != segment || parts.back().group != group)
      parts.push_back({segment, group, {}});
    parts.back().wrt.push_back(w);
  }
  std::set<size_t> later;  // the groups of parts that come after
  for (auto part = parts.rbegin(); part != parts.rend(); ++part)
    part->wrt = handed_over_for(part->wrt, !later.insert(part->group).second);
  divided_ = planned.plan;
  parts_ = std::make_shared<const std::vector<Share>>(std::move(parts));
  return parts_;
}

}  // namespace ort::bridge
