// Pages that come and go at one address. Without their bytes they cannot be read at all: a reader
// that does not hold them ends at once, and computes with no zeros.
#include "providers/constant.h"

#include <sys/mman.h>

#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "csrc/core/meter.h"
#include "csrc/core/pool.h"
#include "providers/shared_constants.h"

namespace ort {
namespace {

constexpr size_t kSmall = 64 << 10;

class Pages {
 public:
  explicit Pages(size_t bytes)
      : bytes_((bytes + kPage - 1) / kPage * kPage), charge_(bytes_), data_(map(bytes_)) {}
  ~Pages() { unmap_pages(data_, bytes_); }
  Pages(const Pages&) = delete;
  uint8_t* data() const { return data_; }

  void hold() {
    const std::lock_guard lock(mutex_);
    if (!present_) {
      if (mprotect(data_, bytes_, PROT_READ | PROT_WRITE) != 0)
        out_of_memory("a constant of {} bytes", bytes_);
      pack_->unpack(data_);
      present_ = true;
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
    if (holders_ > 0 || !pack_ || !present_ || mprotect(data_, bytes_, PROT_NONE) != 0) return;
    madvise(data_, bytes_, MADV_DONTNEED);
    present_ = false;
  }

  const size_t bytes_;
  const Charge charge_;
  uint8_t* const data_;
  std::mutex mutex_;
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

std::shared_ptr<const void> hold(const Tensor& tensor) {
  auto pages = pages_of(tensor);
  if (!pages) return {tensor.owner, tensor.data};
  pages->hold();
  return {tensor.data, [pages = std::move(pages)](const void*) { pages->let_go(); }};
}

namespace {

// Of some words of it, evenly apart: what is found by it is compared whole.
uint64_t sampled(const Tensor& tensor) {
  constexpr size_t kWords = 64, kWord = sizeof(uint64_t);
  const size_t words = tensor.bytes() / kWord;
  uint64_t hash = static_cast<uint64_t>(tensor.dtype) + 0x9e3779b97f4a7c15u;
  const auto mix = [&](uint64_t word) {
    hash = (hash ^ word) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  };
  for (const int64_t size : tensor.sizes) mix(static_cast<uint64_t>(size));
  for (size_t i = 0; i < kWords; ++i) {
    uint64_t word = 0;
    std::memcpy(&word, tensor.as<char>() + words * i / kWords * kWord, kWord);
    mix(word);
  }
  return hash;
}

// A tensor as long as others hold it.
struct Known {
  DType dtype;
  Sizes sizes;
  void* data;
  std::weak_ptr<const void> owner;
  Tensor tensor() const { return {dtype, sizes, data, owner.lock()}; }
};

bool equal(const Tensor& a, const Tensor& b) {
  if (a.dtype != b.dtype || a.sizes != b.sizes) return false;
  const auto left = hold(a), right = hold(b);
  return std::memcmp(left.get(), right.get(), a.bytes()) == 0;
}

}  // namespace

Tensor shared_constant(const Tensor& tensor) {
  constexpr size_t kMost = 4;  // of one sample: hostile files must not make this slow
  static std::mutex mutex;
  static auto& known = *new std::map<uint64_t, std::vector<Known>>;
  static size_t many = 0;
  if (!pages_of(tensor)) return tensor;
  const auto held = hold(tensor);
  const uint64_t sample = sampled(tensor);
  const std::lock_guard lock(mutex);
  if (known.size() > many) {
    for (auto& [unused, alike] : known)
      std::erase_if(alike, [](const Known& each) { return each.owner.expired(); });
    std::erase_if(known, [](const auto& entry) { return entry.second.empty(); });
    many = 2 * known.size() + kMost;
  }
  std::vector<Known>& alike = known[sample];
  for (const Known& each : alike)
    if (const Tensor other = each.tensor(); other.owner && equal(tensor, other)) return other;
  if (alike.size() < kMost)
    alike.push_back({tensor.dtype, tensor.sizes, tensor.data, tensor.owner});
  return tensor;
}

void discard(const Tensor& tensor, std::shared_ptr<const Pack> pack) {
  if (const auto pages = pages_of(tensor)) pages->discard(std::move(pack));
}

}  // namespace ort
