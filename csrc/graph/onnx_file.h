// Files mapped into memory, and external data inside a model's folder.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>

namespace ort {

// A file mapped for reading; unmapped with the last reference.
class MappedFile {
 public:
  static std::shared_ptr<const MappedFile> open(const std::string& path);
  ~MappedFile();
  std::span<const char> bytes() const { return {data_, size_}; }

 private:
  const char* data_ = nullptr;
  size_t size_ = 0;
};

// The files beside a model. A location that leads outside the folder is refused.
class ExternalFiles {
 public:
  explicit ExternalFiles(std::string folder) : folder_(std::move(folder)) {}
  std::shared_ptr<const MappedFile> open(const std::string& location, const std::string& tensor);

 private:
  std::string folder_;
  std::map<std::string, std::shared_ptr<const MappedFile>> open_;
};

}  // namespace ort
