// On the host a copy is memcpy; a device's memory does its own.
#include "csrc/plan/copy.h"

#include <cstring>

namespace ort {
namespace {

class HostCopy final : public Kernel {
 public:
  explicit HostCopy(size_t bytes) : bytes_(bytes) {}
  void run(const Args& args) const override {
    if (bytes_ > 0) std::memcpy(args.out[0], args.in[0], bytes_);
  }
  std::string name() const override { return "copy"; }

 private:
  size_t bytes_;
};

// Of bytes that the host has and may change when the call returns.
class DeviceWrite final : public Kernel {
 public:
  DeviceWrite(size_t bytes, const PlanDevice& to)
      : bytes_(bytes), memory_(to.runtime->memory()), name_(format("write cpu -> {}", to.device)) {}
  void run(const Args& args) const override {
    if (bytes_ > 0) memory_.write(args.out[0], args.in[0], bytes_, args.stream);
  }
  std::string name() const override { return name_; }

 private:
  size_t bytes_;
  Memory& memory_;
  std::string name_;
};

class DeviceCopy final : public Kernel {
 public:
  DeviceCopy(size_t bytes, Memory& memory, CopyKind kind, std::string name)
      : bytes_(bytes), memory_(memory), kind_(kind), name_(std::move(name)) {}
  void run(const Args& args) const override {
    if (bytes_ > 0) memory_.copy(args.out[0], args.in[0], bytes_, kind_, args.stream);
  }
  bool may_be_recorded() const override { return kind_ == CopyKind::within; }
  std::string name() const override { return name_; }

 private:
  size_t bytes_;
  Memory& memory_;
  CopyKind kind_;
  std::string name_;
};

}  // namespace

int copy_stream(size_t bytes, bool to_host) {
  if (to_host) return kDownload;
  return bytes <= Memory::kMostWritten ? kCompute : kUpload;
}

std::unique_ptr<Kernel> copy_kernel(size_t bytes, const PlanDevice& from, const PlanDevice& to) {
  if (from.device.is_host() && to.device.is_host()) return std::make_unique<HostCopy>(bytes);
  if (from.device.is_host() && bytes <= Memory::kMostWritten)
    return std::make_unique<DeviceWrite>(bytes, to);
  const PlanDevice& owner = from.device.is_host() ? to : from;
  const CopyKind kind = from.device == to.device ? CopyKind::within
                        : to.device.is_host()    ? CopyKind::to_host
                                                 : CopyKind::to_device;
  const std::string name =
      kind == CopyKind::within ? "copy" : format("copy {} -> {}", from.device, to.device);
  return std::make_unique<DeviceCopy>(bytes, owner.runtime->memory(), kind, name);
}

}  // namespace ort
