// The lowest opset that a graph can be written in.
#include <algorithm>
#include <sstream>

#include "csrc/onnx/upgrade.h"
#include "csrc/onnx/versions.h"

namespace ort {
namespace {

constexpr int kLeast = 7;  // since which operands broadcast as numpy's do

using Versions = std::map<std::string, std::vector<OnnxVersion>, std::less<>>;

// "13:3:1:1fe:axis,keepdims"
OnnxVersion parse_version(const std::string& text) {
  OnnxVersion version;
  std::istringstream in(text);
  char colon = 0;
  in >> version.opset >> colon >> version.inputs >> colon >> version.outputs >> colon >> std::hex >>
      version.types >> colon;
  for (std::string name; std::getline(in, name, ',');) version.attrs.push_back(name);
  return version;
}

const Versions& versions() {
  static const auto* all = [] {
    auto* made = new Versions();
    std::istringstream lines(kOnnxVersions);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream parts(line);
      std::string op, version;
      parts >> op;
      while (parts >> version) (*made)[op].push_back(parse_version(version));
    }
    return made;
  }();
  return *all;
}

// What an attribute's value needs, where the attribute itself is older.
struct Needed {
  std::string_view op, attr;
  bool (*is_new)(const Attr& value);
  int opset;
};

bool is_text(const Attr& value, std::string_view text) {
  const auto* given = std::get_if<std::string>(&value);
  return given && *given == text;
}
bool is_extremum(const Attr& value) {
  return is_text(value, "max") || is_text(value, "min");
}
bool is_negative(const Attr& value) {
  const auto* given = std::get_if<int64_t>(&value);
  return given && *given < 0;
}
bool is_set(const Attr& value) {
  const auto* given = std::get_if<int64_t>(&value);
  return given && *given != 0;
}

constexpr Needed kNeeded[] = {
    {"AveragePool", "ceil_mode", is_set, 19},  // before, the padding at the end was counted
    {"Compress", "axis", is_negative, 11},
    {"Flatten", "axis", is_negative, 11},
    {"Pad", "mode", [](const Attr& value) { return is_text(value, "wrap"); }, 19},
    {"Resize", "coordinate_transformation_mode",
     [](const Attr& value) { return is_text(value, "half_pixel_symmetric"); }, 19},
    {"ScatterElements", "reduction", is_extremum, 18},
    {"ScatterND", "reduction", is_extremum, 18},
};

bool is_default(const Node& node, const std::string& name, const Attr& value) {
  for (const auto& spec : node.schema->attrs())
    if (spec.name == name)
      return spec.ours || (spec.otherwise && same_attr(*spec.otherwise, value));
  return false;
}

bool takes(const OnnxVersion& version, const Node& node) {
  const size_t captures = static_cast<size_t>(node.attrs.i("captures", 0));
  size_t inputs = node.in.size() - captures;
  while (inputs > 0 && node.in[inputs - 1] == kNone) --inputs;
  if (inputs > version.inputs || node.out.size() > version.outputs) return false;
  for (const std::vector<ValueId>* ids : {&node.in, &node.out})
    for (const ValueId id : *ids)
      if (id != kNone && !(version.types & bit(node.graph->value(id).type()))) return false;
  return std::ranges::all_of(node.attrs, [&](const auto& attr) {
    return version.has_attr(attr.first) || is_default(node, attr.first, attr.second);
  });
}

int opset_of(const Node& node) {
  const auto found = versions().find(node.qualified());
  const OnnxDomain* domain = onnx_domain(node.domain());
  if (found == versions().end()) return domain ? domain->newest : node.schema->since_opset();
  int least = std::max(node.domain().empty() ? kLeast : 1, node.schema->since_opset());
  for (const Needed& needed : kNeeded) {
    const Attr* value = needed.op == node.op ? node.attrs.find(needed.attr) : nullptr;
    if (value && needed.is_new(*value)) least = std::max(least, needed.opset);
  }
  const std::vector<OnnxVersion>& all = found->second;
  for (size_t i = 0; i < all.size(); ++i) {
    const bool past = i + 1 < all.size() && all[i + 1].opset <= least;
    if (!past && takes(all[i], node)) return std::max(least, all[i].opset);
  }
  return std::max(least, all.back().opset);
}

}  // namespace

bool OnnxVersion::has_attr(std::string_view name) const {
  return std::find(attrs.begin(), attrs.end(), name) != attrs.end();
}

const OnnxVersion* onnx_version(std::string_view op, int opset) {
  const auto found = versions().find(op);
  if (found == versions().end()) return nullptr;
  const OnnxVersion* version = nullptr;
  for (const OnnxVersion& each : found->second)
    if (each.opset <= opset) version = &each;
  return version;
}

Opsets lowest_opsets(const Graph& graph) {
  Opsets lowest{{"", kLeast}};
  const auto raise_to = [&](const std::string& domain, int opset) {
    int& found = lowest[domain];
    found = std::max(found, opset);
  };
  for (const Node* node : graph.order()) {
    // A constant is written as an initializer.
    if (!node->schema->is_constant()) raise_to(node->domain(), opset_of(*node));
    for (const auto& [name, body] : node->bodies)
      for (const auto& [domain, opset] : lowest_opsets(*body)) raise_to(domain, opset);
  }
  return lowest;
}

}  // namespace ort
