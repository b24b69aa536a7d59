// One folder a build; stages are numbered in their order.
#include "csrc/program/dump.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <map>
#include <mutex>
#include <set>

#include "csrc/graph/text.h"
#include "csrc/onnx/onnx.h"
#include "csrc/program/plan_json.h"

namespace ort {
namespace {

namespace fs = std::filesystem;

constexpr size_t kInside = 1u << 30;  // bytes of constants; a larger stage has a .data file

constexpr const char* kManifest = ".ortmodule_dump";  // what was written, a path a line

bool is_in_names(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
}

// "build<k>/<file>" of this folder; a manifest may have been edited.
bool is_ours(const fs::path& path) {
  const std::string build = path.parent_path().string(), file = path.filename().string();
  return build.size() > 5 && build.starts_with("build") && !file.empty() && file != "." &&
         file != ".." && std::isdigit(static_cast<unsigned char>(build[5])) &&
         std::all_of(build.begin() + 5, build.end(), is_in_names);
}

// What a run before wrote would stand among the builds of this one; nothing else goes.
void remove_written(const fs::path& folder) {
  std::ifstream manifest(folder / kManifest);
  std::set<fs::path> builds;
  std::error_code failed;
  for (std::string line; std::getline(manifest, line);) {
    if (!is_ours(line) || fs::is_symlink(folder / fs::path(line).parent_path())) continue;
    fs::remove(folder / line, failed);
    builds.insert(folder / fs::path(line).parent_path());
  }
  for (const fs::path& build : builds) fs::remove(build, failed);  // when it is empty
  fs::remove(folder / kManifest, failed);
}

// The next build's folder, made: a number that no other folder has.
fs::path next_build(const fs::path& folder) {
  static auto& mutex = *new Mutex;
  static auto* builds = new std::map<fs::path, int>;
  std::lock_guard lock(mutex);
  fs::create_directories(folder);
  const auto [count, first] = builds->try_emplace(fs::canonical(folder), 0);
  if (first) remove_written(folder);
  for (;;) {
    const fs::path build = folder / format("build{}", count->second++);
    if (fs::create_directory(build)) return build;
  }
}

}  // namespace

Dump::Dump(const std::string& folder, const std::string& part) {
  if (folder.empty()) return;
  if (part.empty()) {
    place_ = next_build(folder);
    return;
  }
  std::string name = part;
  std::replace_if(name.begin(), name.end(), [](char c) { return !is_in_names(c); }, '_');
  int twins = 1;
  do {
    place_ = fs::path(folder) / (twins == 1 ? name : format("{}_{}", name, twins));
    ++twins;
  } while (!fs::create_directory(place_));
}

void Dump::note(const std::string& name) {
  std::ofstream manifest(place_.parent_path() / kManifest, std::ios::app);
  manifest << place_.filename().string() << '/' << name << '\n';
}

void Dump::write(const std::string& name, const std::string& text) {
  note(name);
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
  note(stem + ".onnx");
  note(stem + ".onnx.data");
  write_onnx_file(graph, (place_ / (stem + ".onnx")).string(), kInside, Domains::any);
}

void Dump::plan(const LoweredGraph& lowered, const TrainingPlan& plan, const Symbols& symbols) {
  std::lock_guard lock(mutex_);
  if (on()) write(format("plan{}.json", plans_++), plan_json(lowered, plan, symbols));
}

}  // namespace ort
