// The provider of ops that own graphs: inside a plan each is one kernel, which runs the programs of
// its bodies. A Program has one of its own.
#pragma once

#include "csrc/session/options.h"
#include "providers/provider.h"

namespace ort {

class BodyProvider final : public Provider {
 public:
  explicit BodyProvider(const CompileOptions& options) : options_(options) {}
  std::string_view name() const override { return "bodies"; }
  Verdict can_run(const Node& node) const override;
  std::vector<Region> claim(Graph& graph, const Claimed& claimed) const override;
  Prepared prepare(const Region& region, const Binding& binding) const override;

 private:
  CompileOptions options_;
};

}  // namespace ort
