// The provider of ops that take and give items: inside a plan each is one kernel, which runs the
// programs of its bodies, or a user's function. A Program has one of its own.
#pragma once

#include "csrc/program/options.h"
#include "providers/provider.h"

namespace ort {

class ItemProvider final : public Provider {
 public:
  explicit ItemProvider(const CompileOptions& options) : options_(options) {}
  std::string_view name() const override { return "host"; }
  Verdict can_run(const Node& node) const override;
  std::vector<Region> claim(Graph& graph, const Claimed& claimed) const override;
  Prepared prepare(const Region& region, const Binding& binding) const override;

 private:
  CompileOptions options_;
};

}  // namespace ort
