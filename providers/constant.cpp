// Pages that come and go at one address. Without their bytes they cannot be read at all: a reader
// that does not hold them ends at once, and computes with no zeros.
#include "providers/constant.h"

#include <sys/mman.h>

#include <atomic>

#include "csrc/core/meter.h"
#include "csrc/core/mutex.h"
#include "csrc/core/pool.h"

namespace ort {
namespace {

constexpr size_t kSmall = 64 << 10;

// Pages without bytes are a mapping apart, of which a process may have 65,530 (Linux's
// vm.max_map_count): so many constants are gone at a time, the others stay.
constexpr int kMostGone = 16000;
std::atomic<int> gone = 0;

class Pages {
 public:
  explicit Pages(size_t bytes)
      : bytes_((bytes + kPage - 1) / kPage * kPage), charge_(bytes_), data_(map(bytes_)) {}
  ~Pages() {
    pack_.reset();  // packs are known by the address, which may be another constant's from here on
    unmap_pages(data_, bytes_);
    if (!present_) --gone;
  }
  Pages(const Pages&) = delete;
  uint8_t* data() const { return data_; }

  void hold() {
    const std::lock_guard lock(mutex_);
    if (!present_) {
      if (mprotect(data_, bytes_, PROT_READ | PROT_WRITE) != 0)
        out_of_memory("a constant of {} bytes", bytes_);
      pack_->unpack(data_);
      present_ = true;
      --gone;
    }
    ++holders_;
  }
  void let_go() {
    const std::lock_guard lock(mutex_);
    --holders_;
    drop();
  }
  void discard(std::shared_ptr<const Pack> pack) {
    const std::lock_guard lock(mutex_);
    if (!pack_) pack_ = std::move(pack);
    drop();
  }

 private:
  static uint8_t* map(size_t bytes) {
    if (bytes >= kHugePage) {
      if (uint8_t* pages = map_pages(bytes)) return pages;
    } else if (void* pages =
                   mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
               pages != MAP_FAILED) {
      return static_cast<uint8_t*>(pages);
    }
    out_of_memory("a constant of {} bytes", bytes);
  }
  // The bytes stay where the system refuses.
  void drop() {
    if (holders_ > 0 || !pack_ || !present_) return;
    if (++gone > kMostGone || mprotect(data_, bytes_, PROT_NONE) != 0) {
      --gone;
      return;
    }
    madvise(data_, bytes_, MADV_DONTNEED);
    present_ = false;
  }

  const size_t bytes_;
  const Charge charge_;
  uint8_t* const data_;
  Mutex mutex_;
  size_t holders_ = 0;
  bool present_ = true;
  std::shared_ptr<const Pack> pack_;
};

// What owns such a tensor's memory, by which it is known.
struct PagesOwner {
  std::shared_ptr<Pages> pages;
  void operator()(const void*) { pages.reset(); }
};

std::shared_ptr<Pages> pages_of(const Tensor& tensor) {
  const PagesOwner* owner = std::get_deleter<PagesOwner>(tensor.owner);
  return owner ? owner->pages : nullptr;
}

}  // namespace

Tensor discardable_tensor(DType dtype, Sizes sizes) {
  Tensor tensor{dtype, std::move(sizes), nullptr, nullptr};
  const auto bytes = static_cast<size_t>(
      checked_mul(element_count(tensor.sizes), static_cast<int64_t>(size_of(dtype))));
  if (bytes < kSmall) return Tensor::empty(dtype, std::move(tensor.sizes));
  check_memory(bytes);
  auto pages = std::make_shared<Pages>(bytes);
  tensor.data = pages->data();
  tensor.owner = std::shared_ptr<const void>(tensor.data, PagesOwner{std::move(pages)});
  return tensor;
}

bool is_discardable(const Tensor& tensor) {
  return pages_of(tensor) != nullptr;
}

std::shared_ptr<const void> hold(const Tensor& tensor) {
  auto pages = pages_of(tensor);
  if (!pages) return {tensor.owner, tensor.data};
  pages->hold();
  return {tensor.data, [pages = std::move(pages)](const void*) { pages->let_go(); }};
}

std::shared_ptr<const void> Constant::hold() const {
  check(tensor_ != nullptr, "a kernel reads a constant where it has none");
  return ort::hold(*tensor_);
}

void discard(const Tensor& tensor, std::shared_ptr<const Pack> pack) {
  if (const auto pages = pages_of(tensor)) pages->discard(std::move(pack));
}

}  // namespace ort
