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

class DeviceCopy final : public Kernel {
 public:
  DeviceCopy(size_t bytes, Memory& memory, CopyKind kind, std::string name)
      : bytes_(bytes), memory_(memory), kind_(kind), name_(std::move(name)) {}
  void run(const Args& args) const override {
    if (bytes_ > 0) memory_.copy(args.out[0], args.in[0], bytes_, kind_, args.stream);
  }
  std::string name() const override { return name_; }

 private:
  size_t bytes_;
  Memory& memory_;
  CopyKind kind_;
  std::string name_;
};

}  // namespace

std::unique_ptr<Kernel> copy_kernel(size_t bytes, const PlanDevice& from, const PlanDevice& to) {
  if (from.device.is_host() && to.device.is_host()) return std::make_unique<HostCopy>(bytes);
  const PlanDevice& owner = from.device.is_host() ? to : from;
  const CopyKind kind = from.device == to.device ? CopyKind::within
                        : to.device.is_host()    ? CopyKind::to_host
                                                 : CopyKind::to_device;
  const std::string name =
      kind == CopyKind::within ? "copy" : format("copy {} -> {}", from.device, to.device);
  return std::make_unique<DeviceCopy>(bytes, owner.runtime->memory(), kind, name);
}

}  // namespace ort
