// Files by handle: opened, then checked, then read. A name may lead elsewhere a moment later.
#include "csrc/onnx/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "csrc/core/error.h"
#include "csrc/core/pool.h"

namespace ort {
namespace {

namespace fs = std::filesystem;

std::string path_of_handle(int file, const std::string& path) {
  std::error_code failed;
  const fs::path real = fs::read_symlink(format("/proc/self/fd/{}", file), failed);
  return failed ? fs::canonical(path, failed).string() : real.string();
}

bool lies_in(const fs::path& file, const fs::path& folder) {
  const auto [end, unused] = std::mismatch(folder.begin(), folder.end(), file.begin(), file.end());
  return !folder.empty() && end == folder.end() && file != folder;
}

}  // namespace

void check_path(const std::string& path) {
  if (const size_t nul = path.find('\0'); nul != std::string::npos)
    fail("path '{}\\0{}' has a NUL in it", path.substr(0, nul), path.substr(nul + 1));
}

OpenFile::OpenFile(const std::string& path) : path_(path) {
  check_path(path);
  // A pipe would wait for its writer.
  file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  check(file_ >= 0, "cannot open '{}': {}", path, std::strerror(errno));
  struct stat status{};
  const bool regular = fstat(file_, &status) == 0 && S_ISREG(status.st_mode);
  if (!regular) {
    ::close(file_);
    fail("'{}' is no regular file", path);
  }
  size_ = static_cast<int64_t>(status.st_size);
  real_path_ = path_of_handle(file_, path);
}

OpenFile::~OpenFile() {
  ::close(file_);
}

void OpenFile::read(int64_t offset, int64_t bytes, void* to) const {
  for (int64_t done = 0; done < bytes;) {
    const ssize_t got = pread(file_, static_cast<char*>(to) + done,
                              static_cast<size_t>(bytes - done), offset + done);
    if (got < 0 && errno == EINTR) continue;
    check(got > 0, "'{}' ends at byte {}, expected {} more{}", path_, offset + done, bytes - done,
          got < 0 ? format(": {}", std::strerror(errno)) : std::string());
    done += got;
  }
}

std::shared_ptr<const char> OpenFile::map() const {
  if (size_ == 0) return nullptr;
  const size_t bytes = static_cast<size_t>(size_);
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file_, 0);
  check(data != MAP_FAILED, "cannot map '{}': {}", path_, std::strerror(errno));
  return {static_cast<const char*>(data),
          [bytes](const char* p) { munmap(const_cast<char*>(p), bytes); }};
}

bool ExternalFiles::allows(const std::string& real_path) const {
  std::error_code failed;
  return lies_in(real_path, fs::weakly_canonical(folder_, failed)) ||
         lies_in(real_path, real_folder_);
}

const ExternalFiles::Entry& ExternalFiles::open(const std::string& location,
                                                const std::string& tensor) {
  check(!folder_.empty(),
        "tensor '{}' has external data '{}', but the model was not read from a file", tensor,
        location);
  check_path(location);
  Entry& entry = open_[location];
  if (entry.file) return entry;
  const auto refuse_outside = [&](bool inside) {
    check(inside, "tensor '{}' has external data '{}', which lies outside the model's folder",
          tensor, location);
  };
  // Before it is opened, as opening may do something; and after, as the name may lead elsewhere.
  std::error_code failed;
  const fs::path path = fs::path(folder_) / location;
  const fs::path real = fs::weakly_canonical(path, failed);
  refuse_outside(!failed && !fs::path(location).is_absolute() && allows(real.string()));
  auto file = std::make_unique<OpenFile>(path.string());
  refuse_outside(allows(file->real_path()));
  if (map_) entry.mapped = file->map();
  entry.file = std::move(file);
  return entry;
}

const Tensor& ExternalFiles::given(const std::string& location, const std::string& tensor) const {
  const auto found = given_.find(fs::path(location).lexically_normal().string());
  check(found != given_.end(), "tensor '{}' has external data '{}', and no such file was given",
        tensor, location);
  return found->second;
}

Tensor ExternalFiles::read(const std::string& location, int64_t offset, DType dtype,
                           const Sizes& sizes, const std::string& tensor) {
  const int64_t bytes = checked_mul(element_count(sizes), static_cast<int64_t>(size_of(dtype)));
  const auto lies_within = [&](int64_t size) {
    check(offset <= size && bytes <= size - offset,
          "tensor '{}' ends at byte {} of '{}', which has {}", tensor, checked_add(offset, bytes),
          location, size);
  };
  if (!given_.empty()) {
    const Tensor& file = given(location, tensor);
    lies_within(file.count());
    return borrow(file.as<char>() + offset, dtype, sizes, nullptr, allocate_);
  }
  const Entry& entry = open(location, tensor);
  lies_within(entry.file->size());
  if (entry.mapped)
    return borrow(entry.mapped.get() + offset, dtype, sizes, entry.mapped, allocate_);
  Tensor result = allocate_(dtype, sizes);
  entry.file->read(offset, bytes, result.data);
  return result;
}

Tensor borrow(const char* data, DType dtype, const Sizes& sizes, std::shared_ptr<const void> owner,
              const TensorAllocator& allocate) {
  Tensor result;
  if (owner && reinterpret_cast<uintptr_t>(data) % std::max<size_t>(size_of(dtype), 16) == 0) {
    result.dtype = dtype;
    result.sizes = sizes;
    result.data = const_cast<char*>(data);
    result.owner = std::move(owner);
    return result;
  }
  result = allocate(dtype, sizes);
  if (result.bytes() > 0) std::memcpy(result.data, data, result.bytes());
  return result;
}

}  // namespace ort
