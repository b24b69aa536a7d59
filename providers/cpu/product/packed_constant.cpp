// Packs by what they are made of, as long as a kernel holds them.
#include "providers/cpu/product/packed_constant.h"

#include <map>
#include <mutex>
#include <tuple>

#include "csrc/core/pool.h"

namespace ort::cpu {
namespace {

using Key = std::tuple<const void*, int64_t, int64_t, int64_t>;  // data, k, n, its row

}  // namespace

template <class T>
std::shared_ptr<const T> packed_constant(int64_t k, int64_t n, const Matrix<T>& b) {
  static std::mutex mutex;
  static auto& packs = *new std::map<Key, std::weak_ptr<const T>>;
  std::lock_guard lock(mutex);
  std::erase_if(packs, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<const T>& slot = packs[Key{b.data, k, n, b.row}];
  if (auto found = slot.lock()) return found;
  auto memory = std::make_shared<Block>(static_cast<size_t>(packed_count<T>(k, n)) * sizeof(T));
  T* to = reinterpret_cast<T*>(memory->data());
  pack(k, n, b, to);
  std::shared_ptr<const T> made(std::move(memory), to);
  slot = made;
  return made;
}

template std::shared_ptr<const float> packed_constant(int64_t, int64_t, const Matrix<float>&);
template std::shared_ptr<const double> packed_constant(int64_t, int64_t, const Matrix<double>&);

}  // namespace ort::cpu
