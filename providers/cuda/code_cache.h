// Compiled code that outlives the process: a file for each key in a folder that its owner alone may
// write. What is read is checked; several processes may use one folder at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ort::cuda {

class CodeCache {
 public:
  // Files of `limit` bytes together stay, those that were used last. No folder's name: no cache.
  explicit CodeCache(std::string folder, uint64_t limit = uint64_t{256} << 20)
      : folder_(std::move(folder)), limit_(limit) {}
  // What was kept for the key; nothing where its file is missing, damaged or another key's.
  std::optional<std::vector<char>> find(const std::string& key) const;
  // Where that cannot be, the reason is logged, once in a process.
  void keep(const std::string& key, const std::vector<char>& code) const;

 private:
  std::string folder_;
  uint64_t limit_;
};

}  // namespace ort::cuda
