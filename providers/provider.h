// A provider claims regions of a graph and prepares kernels for them. Core never names one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "csrc/graph/schema.h"
#include "providers/kernel.h"

namespace ort {

// Nodes that one kernel runs, in program order, with the values that enter and leave.
struct Region {
  std::vector<Node*> nodes;
  std::vector<ValueId> in,
      out;           // distinct; a single node's region keeps its positions (kNone: absent)
  std::string kind;  // the provider's own word: "matmul", "tile", ...
  // The provider's: what it makes of the region for every binding.
  std::shared_ptr<void> kept = nullptr;
};

// A node alone: in and out are the node's own lists.
Region region_of(Node& node);

// Of a region's inputs: whether kernels read it on the host, whatever device they run on.
std::vector<bool> host_inputs(const Region& region);

// Concrete types of a region's operands.
struct Binding {
  std::vector<Operand> in, out;
  const Symbols* symbols = nullptr;  // for attributes of type Dims
};

// Nodes already taken by an earlier provider.
class Claimed {
 public:
  virtual ~Claimed() = default;
  virtual bool taken(const Node& node) const = 0;
};

class Provider {
 public:
  virtual ~Provider() = default;
  virtual std::string_view name() const = 0;
  virtual Verdict can_run(const Node& node) const = 0;
  // Regions over nodes that nobody took; each passes can_run. The default: every node alone.
  virtual std::vector<Region> claim(Graph& graph, const Claimed& claimed) const;
  virtual Prepared prepare(const Region& region, const Binding& binding) const = 0;
  // Whether the region's kernel may take an input that is not row-major.
  virtual bool takes_layouts(const Region&) const { return false; }

  // Of a region's inputs: whether its kernel reads them on the host. The default: as the ops'
  // schemas say. A recording keeps what was read so, and a random key is another one in each run.
  virtual std::vector<bool> reads_on_host(const Region& region) const;

  // Where its kernels run, for a graph whose inputs lie on `home`.
  virtual Device device(Device /*home*/) const { return {}; }
  // Whether a node that it cannot run, but whose parts it may, is expanded before a provider of
  // another device is asked.
  virtual bool expands(const Node&) const { return false; }
  // Whether it gives memory of such devices; asked of everybody, so nothing may be opened for it.
  virtual bool gives(DeviceKind) const { return false; }
  // The memory and streams of a device that is not the host; null: it gives none of that one.
  virtual DeviceRuntime* runtime(Device) const { return nullptr; }
};

// Providers register themselves when their library loads; found by name.
void register_provider(std::unique_ptr<Provider> provider);
const Provider* find_provider(std::string_view name);
std::vector<std::string> provider_names();

}  // namespace ort
