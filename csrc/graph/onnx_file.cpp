// mmap, and the check that external data stays inside the model's folder.
#include "csrc/graph/onnx_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "csrc/core/error.h"

namespace ort {

namespace fs = std::filesystem;

std::shared_ptr<const MappedFile> MappedFile::open(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  check(file >= 0, "cannot open '{}': {}", path, std::strerror(errno));
  struct stat status{};
  const bool regular = fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  auto mapped = std::make_shared<MappedFile>();
  mapped->size_ = regular ? static_cast<size_t>(status.st_size) : 0;
  void* data =
      mapped->size_ > 0 ? mmap(nullptr, mapped->size_, PROT_READ, MAP_PRIVATE, file, 0) : nullptr;
  ::close(file);
  check(regular, "'{}' is no regular file", path);
  check(data != MAP_FAILED, "cannot map '{}': {}", path, std::strerror(errno));
  mapped->data_ = static_cast<const char*>(data);
  return mapped;
}

MappedFile::~MappedFile() {
  if (data_) munmap(const_cast<char*>(data_), size_);
}

std::shared_ptr<const MappedFile> ExternalFiles::open(const std::string& location,
                                                      const std::string& tensor) {
  check(!folder_.empty(),
        "tensor '{}' has external data '{}', but the model was not read from a file", tensor,
        location);
  auto& slot = open_[location];
  if (slot) return slot;
  std::error_code failed;
  const fs::path folder = fs::weakly_canonical(folder_, failed);
  const fs::path file = fs::weakly_canonical(folder / location, failed);
  const auto [end, unused] = std::mismatch(folder.begin(), folder.end(), file.begin(), file.end());
  const bool inside =
      !failed && !fs::path(location).is_absolute() && end == folder.end() && file != folder;
  check(inside, "tensor '{}' has external data '{}', which lies outside the model's folder", tensor,
        location);
  return slot = MappedFile::open(file.string());
}

}  // namespace ort
