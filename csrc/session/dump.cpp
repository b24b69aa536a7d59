// One folder a build, one text file a stage, numbered in their order.
#include "csrc/session/dump.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>

#include "csrc/graph/text.h"

namespace ort {

std::function<void(const std::string&, const Graph&)> dumper(const std::string& folder) {
  if (folder.empty()) return {};
  static std::atomic<int> builds{0};
  const std::filesystem::path place = std::filesystem::path(folder) / format("build{}", builds++);
  std::filesystem::create_directories(place);
  auto count = std::make_shared<int>(0);
  return [place, count](const std::string& stage, const Graph& graph) {
    const std::string number = (*count < 10 ? "0" : "") + std::to_string(*count);
    ++*count;
    std::ofstream file(place / (number + "_" + stage + ".txt"));
    file << print(graph);
    check(file.good(), "cannot write stage '{}' to {}", stage, place.string());
  };
}

}  // namespace ort
