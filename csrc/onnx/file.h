// The bytes of a model's file, and external data beside it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "csrc/core/tensor.h"

namespace ort {

// Throws where a NUL would end it early for the system: another file than it names.
void check_path(const std::string& path);

// Memory of that many elements, for bytes to be written there.
using TensorAllocator = std::function<Tensor(DType, Sizes)>;

// A regular file that was opened once: what is asked about it is asked of the handle.
class OpenFile {
 public:
  explicit OpenFile(const std::string& path);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int64_t size() const { return size_; }
  const std::string& real_path() const { return real_path_; }  // where the handle leads
  // Throws where the file has become shorter than it was.
  void read(int64_t offset, int64_t bytes, void* to) const;
  // The whole file, mapped: for files that nobody shortens meanwhile.
  std::shared_ptr<const char> map() const;

 private:
  int file_ = -1;
  int64_t size_ = 0;
  std::string path_, real_path_;
};

// The files beside a model: in its folder, or in that of the file that it links to. A location that
// leads elsewhere is refused. Where bytes are given by location, these and no file are read.
class ExternalFiles {
 public:
  using Given = std::map<std::string, Tensor>;
  ExternalFiles(std::string folder, std::string real_folder, bool map, const Given& given,
                TensorAllocator allocate)
      : folder_(std::move(folder)),
        real_folder_(std::move(real_folder)),
        map_(map),
        given_(given),
        allocate_(std::move(allocate)) {}
  const TensorAllocator& allocator() const { return allocate_; }
  // `bytes` of `location` from `offset` as a tensor of that type.
  Tensor read(const std::string& location, int64_t offset, DType dtype, const Sizes& sizes,
              const std::string& tensor);

 private:
  struct Entry {
    std::unique_ptr<OpenFile> file;
    std::shared_ptr<const char> mapped;
  };
  const Entry& open(const std::string& location, const std::string& tensor);
  const Tensor& given(const std::string& location, const std::string& tensor) const;
  bool allows(const std::string& real_path) const;

  std::string folder_, real_folder_;
  bool map_;
  const Given& given_;
  TensorAllocator allocate_;
  std::map<std::string, Entry> open_;
};

// Of dtype and sizes: the bytes where they are when they are aligned and have an owner, else a
// copy.
Tensor borrow(const char* data, DType dtype, const Sizes& sizes, std::shared_ptr<const void> owner,
              const TensorAllocator& allocate);

}  // namespace ort
