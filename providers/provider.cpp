// The registry of providers and the default claim: every node alone.
#include "providers/provider.h"

#include <set>

#include "csrc/core/mutex.h"

namespace ort {
namespace {

Mutex& mutex() {
  static auto& mutex = *new Mutex;
  return mutex;
}
std::vector<std::unique_ptr<Provider>>& registry() {
  static auto* providers = new std::vector<std::unique_ptr<Provider>>();
  return *providers;
}

}  // namespace

Region region_of(Node& node) {
  return {{&node}, node.in, node.out, node.qualified(), nullptr};
}

std::vector<bool> host_inputs(const Region& region) {
  std::vector<bool> host(region.in.size(), false);
  if (region.nodes.size() == 1) {
    for (size_t i = 0; i < host.size(); ++i) host[i] = region.nodes[0]->schema->is_host(i);
    return host;
  }
  std::set<ValueId> read;
  for (const Node* node : region.nodes)
    for (size_t i = 0; i < node->in.size(); ++i)
      if (node->schema->is_host(i)) read.insert(node->in[i]);
  for (size_t i = 0; i < host.size(); ++i) host[i] = read.count(region.in[i]) != 0;
  return host;
}

std::vector<bool> Provider::reads_on_host(const Region& region) const {
  return host_inputs(region);
}

std::unique_ptr<Kernel> Prepared::finish() && {
  Compiled compiled;
  for (const Source& source : sources) compiled.push_back(source.compile());
  return link ? link(compiled) : std::move(kernel);
}

std::vector<Region> Provider::claim(Graph& graph, const Claimed& claimed) const {
  std::vector<Region> regions;
  for (Node* node : graph.order())
    if (!claimed.taken(*node) && can_run(*node)) regions.push_back(region_of(*node));
  return regions;
}

void register_provider(std::unique_ptr<Provider> provider) {
  std::lock_guard lock(mutex());
  for (auto& known : registry())
    if (known->name() == provider->name()) return;
  registry().push_back(std::move(provider));
}

const Provider* find_provider(std::string_view name) {
  std::lock_guard lock(mutex());
  for (const auto& provider : registry())
    if (provider->name() == name) return provider.get();
  return nullptr;
}

std::vector<std::string> provider_names() {
  std::lock_guard lock(mutex());
  std::vector<std::string> names;
  for (const auto& provider : registry()) names.emplace_back(provider->name());
  return names;
}

}  // namespace ort
