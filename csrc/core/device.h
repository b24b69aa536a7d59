// Where memory lies and where work is queued. Core knows no vendor: a provider of a device gives
// its Memory and its Streams; the host's are here.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>

namespace ort {

enum class DeviceKind : uint8_t { cpu, cuda, private_use };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  bool is_host() const { return kind == DeviceKind::cpu; }
  friend auto operator<=>(const Device&, const Device&) = default;
  std::string text() const;  // "cpu", "cuda:1", "private_use:0"
};

std::ostream& operator<<(std::ostream& out, const Device& device);

// A point in a stream's work.
class Event {
 public:
  virtual ~Event() = default;
  virtual void synchronize() = 0;  // the host waits until the work before it is done
};

// A queue of work that runs in its order, maybe later than it is given.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual std::unique_ptr<Event> record() = 0;
  virtual void wait(Event& event) = 0;  // what is queued from now on runs after the event
  virtual void synchronize() = 0;       // the host waits for all that is queued
  virtual void* native() const { return nullptr; }  // as the device's own library has it
};

// The host's: what is given to it has run when the call returns.
Stream& host_stream();

enum class CopyKind : uint8_t { within, to_device, to_host };

// The memory of one device. Work on a block is ordered by streams: one is allocated for what is
// queued on `stream` from now on, and freed after what was queued on it before.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual void* allocate(size_t bytes, Stream& stream) = 0;  // throws OutOfMemory
  virtual void free(void* data, size_t bytes, Stream& stream) = 0;
  virtual void zero(void* data, size_t bytes, Stream& stream) = 0;
  virtual void copy(void* to, const void* from, size_t bytes, CopyKind kind, Stream& stream) = 0;
  // As a copy to the device, of bytes of the host's that are read before this returns: nobody has
  // to wait for it. At most kMostWritten.
  virtual void write(void* to, const void* from, size_t bytes, Stream& stream) = 0;
  static constexpr size_t kMostWritten = 16;
  virtual void trim() {}  // gives back what is kept idle
  // Memory of the host's that the device copies to without the host, which may read it meanwhile;
  // it is never given back. Null: the device has none.
  virtual void* allocate_mapped(size_t) { return nullptr; }
  // Whether a wait for an event of the device would be none; asked of one that has such memory.
  virtual bool is_done(Event& event);
};

// The streams of a device: kernels run on the first, copies from and to the host on the others.
enum StreamUse : int { kCompute, kUpload, kDownload, kStreams };

// Work that a device has recorded and does again, at the same addresses, when it is replayed.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void replay(Stream& stream) = 0;  // queued there as if it were given anew
};

// A device that is not the host, as a provider gives it.
class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;
  virtual Memory& memory() = 0;
  // For the calling thread. `native`: the caller's own stream, which is to be the first; null may
  // be the name of one.
  virtual Stream& stream(int use, std::optional<void*> native = {}) = 0;
  virtual void synchronize() = 0;  // the host waits for all that was queued on any stream
  // By what its kernels choose how they run when they are queued, besides what they are given.
  virtual uint64_t switches() const { return 0; }
  // What `work` queues on the stream that it is given, which does not run now. Null: the device
  // does not record, and `work` was not called.
  virtual std::unique_ptr<Recording> record(const std::function<void(Stream&)>& /*work*/) {
    return nullptr;
  }
};

}  // namespace ort
