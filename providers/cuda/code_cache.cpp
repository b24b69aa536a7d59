// A file has a head, the whole key and the code. It is written beside its place and moved there, so
// that nobody sees a part of it; what a crash leaves half written does not pass the checks.
#include "providers/cuda/code_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>

#include "csrc/core/log.h"

namespace ort::cuda {
namespace {

constexpr char kMagic[8] = {'o', 'r', 't', 'c', 'o', 'd', 'e', '1'};
constexpr int64_t kLargest = int64_t{64} << 20;  // bytes of a file that is read at all
constexpr int64_t kAbandoned = 3600;             // seconds; a part this old has no writer

struct Head {
  char magic[8];
  uint64_t key_bytes, code_bytes, sum;
};

class File {
 public:
  explicit File(int handle) : handle_(handle) {}
  ~File() {
    if (handle_ >= 0) close(handle_);
  }
  File(const File&) = delete;
  operator int() const { return handle_; }  // NOLINT: it is passed as one

 private:
  int handle_;
};

// FNV-1a.
uint64_t sum_of(std::string_view bytes, uint64_t sum = 0xcbf29ce484222325) {
  for (const char c : bytes) sum = (sum ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return sum;
}

std::string hex(uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
  return text;
}

std::string name_of(const std::string& key) {
  return hex(sum_of(key)) + ".code";
}

// "<hash>.code", and "<hash>.code.<random>" while it is written.
bool is_own(std::string_view name) {
  return name.size() >= 21 && name.substr(16, 5) == ".code" &&
         name.substr(0, 16).find_first_not_of("0123456789abcdef") == name.npos;
}
bool is_part(std::string_view name) {
  return name.size() > 21;
}

void tell(const std::string& folder, const std::string& why) {
  static std::atomic<bool> told = false;
  if (!told.exchange(true)) log("compiled kernels are not kept in {}: {}", folder, why);
}

// Made where it is missing. Negative: it is not used, and that is told.
int open_folder(const std::string& path) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  mkdir(path.c_str(), 0700);
  const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  struct stat found{};
  if (folder < 0 || fstat(folder, &found) != 0) {
    tell(path, std::strerror(errno));
  } else if (found.st_uid != geteuid()) {
    tell(path, "it is another user's");
  } else if (found.st_mode & (S_IWGRP | S_IWOTH)) {
    tell(path, "others may write there");
  } else {
    return folder;
  }
  if (folder >= 0) close(folder);
  return -1;
}

// Empty: it is no plain file, too large, or cannot be read.
std::string contents(int file) {
  struct stat found{};
  if (fstat(file, &found) != 0 || !S_ISREG(found.st_mode) || found.st_size > kLargest) return {};
  std::string bytes(static_cast<size_t>(found.st_size), '\0');
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t more = read(file, bytes.data() + at, bytes.size() - at);
    if (more <= 0) return {};
    at += static_cast<size_t>(more);
  }
  return bytes;
}

bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t more = write(file, bytes.data(), bytes.size());
    if (more <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(more));
  }
  return true;
}

struct Kept {
  timespec used;
  uint64_t bytes;
  std::string name;
};

std::vector<Kept> files_of(int folder) {
  std::vector<Kept> files;
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(
      fdopendir(openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)), closedir);
  while (const dirent* entry = entries ? readdir(entries.get()) : nullptr) {
    struct stat found{};
    if (!is_own(entry->d_name) || fstatat(folder, entry->d_name, &found, AT_SYMLINK_NOFOLLOW) != 0)
      continue;
    files.push_back({found.st_mtim, static_cast<uint64_t>(found.st_size), entry->d_name});
  }
  return files;
}

// The files that were used longest ago go first.
void trim(int folder, uint64_t limit) {
  std::vector<Kept> files = files_of(folder);
  std::sort(files.begin(), files.end(), [](const Kept& a, const Kept& b) {
    return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
  });
  uint64_t all = 0;
  for (const Kept& file : files) all += file.bytes;
  const time_t now = time(nullptr);
  for (const Kept& file : files) {
    if (is_part(file.name) ? now - file.used.tv_sec < kAbandoned : all <= limit) continue;
    if (unlinkat(folder, file.name.c_str(), 0) == 0) all -= file.bytes;
  }
}

}  // namespace

std::optional<std::vector<char>> CodeCache::find(const std::string& key) const {
  if (folder_.empty()) return {};
  const File folder(open_folder(folder_));
  if (folder < 0) return {};
  // Not through a link, and without waiting for the other end of a pipe.
  const File file(
      openat(folder, name_of(key).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file < 0) return {};
  const std::string bytes = contents(file);
  Head head{};
  if (bytes.size() < sizeof head) return {};
  std::memcpy(&head, bytes.data(), sizeof head);
  const std::string_view rest = std::string_view(bytes).substr(sizeof head);
  const bool whole = std::memcmp(head.magic, kMagic, sizeof kMagic) == 0 &&
                     head.key_bytes == key.size() && rest.size() >= key.size() &&
                     head.code_bytes == rest.size() - key.size() && head.code_bytes > 0;
  if (!whole || !rest.starts_with(key) || sum_of(rest) != head.sum) return {};
  futimens(file, nullptr);  // used now
  return std::vector<char>(rest.begin() + static_cast<ptrdiff_t>(key.size()), rest.end());
}

void CodeCache::keep(const std::string& key, const std::vector<char>& code) const {
  if (folder_.empty()) return;
  const File folder(open_folder(folder_));
  if (folder < 0) return;
  const std::string_view bytes(code.data(), code.size());
  Head head{{}, key.size(), code.size(), sum_of(bytes, sum_of(key))};
  std::memcpy(head.magic, kMagic, sizeof kMagic);
  std::random_device random;
  const std::string name = name_of(key);
  const std::string part = name + "." + hex(uint64_t{random()} << 32 | random());
  const File file(openat(folder, part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const bool kept =
      file >= 0 &&
      write_all(file, std::string_view(reinterpret_cast<const char*>(&head), sizeof head)) &&
      write_all(file, key) && write_all(file, bytes) &&
      renameat(folder, part.c_str(), folder, name.c_str()) == 0;
  if (kept) return trim(folder, limit_);
  tell(folder_, std::strerror(errno));
  if (file >= 0) unlinkat(folder, part.c_str(), 0);
}

}  // namespace ort::cuda
