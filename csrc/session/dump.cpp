// One folder a build; stages are numbered in their order.
#include "csrc/session/dump.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <mutex>

#include "csrc/graph/onnx.h"
#include "csrc/graph/text.h"
#include "csrc/session/plan_json.h"

namespace ort {
namespace {

namespace fs = std::filesystem;

constexpr size_t kInside = 1u << 30;  // bytes of constants; a larger stage has a .data file

bool is_build(const fs::path& path) {
  const std::string name = path.filename();
  return name.size() > 5 && name.starts_with("build") &&
         std::all_of(name.begin() + 5, name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// The next build's folder. What a run before left would stand among the builds of this one.
fs::path next_build(const fs::path& folder) {
  static std::mutex mutex;
  static auto* builds = new std::map<fs::path, int>;
  std::lock_guard lock(mutex);
  fs::create_directories(folder);
  const auto [count, first] = builds->try_emplace(fs::canonical(folder), 0);
  if (first) {
    std::vector<fs::path> old;
    for (const auto& entry : fs::directory_iterator(folder))
      if (is_build(entry.path())) old.push_back(entry.path());
    for (const fs::path& path : old) fs::remove_all(path);
  }
  return folder / format("build{}", count->second++);
}

}  // namespace

Dump::Dump(const std::string& folder) {
  if (folder.empty()) return;
  place_ = next_build(folder);
  fs::create_directories(place_);
}

void Dump::write(const std::string& name, const std::string& text) {
  std::ofstream file(place_ / name);
  file << text;
  file.flush();
  check(file.good(), "cannot write '{}' to {}", name, place_.string());
}

void Dump::stage(const std::string& name, const Graph& graph) {
  if (!on()) return;
  const std::string stem = format("{}{}_{}", stages_ < 10 ? "0" : "", stages_, name);
  ++stages_;
  write(stem + ".txt", print(graph));
  write_onnx_file(graph, (place_ / (stem + ".onnx")).string(), kInside, Domains::any);
}

void Dump::plan(const Layout& layout, const Plan& plan, const Symbols& symbols) {
  if (on()) write(format("plan{}.json", plans_++), plan_json(layout, plan, symbols));
}

}  // namespace ort
