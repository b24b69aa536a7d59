// Tables of keys and values.
#include <cmath>
#include <limits>
#include <unordered_map>

#include "providers/reference/reference.h"

namespace ort::reference {
namespace {

const Tensor* table_tensor(const Request& r, std::string_view name) {
  const Attr* attr = r.attrs().find(name);
  return attr ? &std::get<Tensor>(*attr) : nullptr;
}

// Strings by what they say, numbers by value: NaNs are one, zeros of both signs too.
class Table {
 public:
  explicit Table(const Tensor& keys) : keys_(keys) {
    for (int64_t i = 0; i < keys.count(); ++i)
      if (keys.dtype == DType::string)
        texts_[text_of(keys, i)] = i;  // the last of equal keys
      else
        numbers_[number(keys.data, i)] = i;
  }

  // The place of element i among the keys; -1: none.
  int64_t find(const void* data, int64_t i) const {
    if (keys_.dtype != DType::string) return found(numbers_, number(data, i));
    const std::string* text = static_cast<const std::string* const*>(data)[i];
    return found(texts_, text ? std::string_view(*text) : std::string_view());
  }

 private:
  template <class Map, class Key>
  static int64_t found(const Map& map, const Key& key) {
    const auto at = map.find(key);
    return at == map.end() ? -1 : at->second;
  }

  int64_t number(const void* data, int64_t i) const {
    if (!is_floating(keys_.dtype)) return reader<int64_t>(keys_.dtype, data)[i];
    double value = reader<double>(keys_.dtype, data)[i];
    if (std::isnan(value)) value = std::numeric_limits<double>::quiet_NaN();
    if (value == 0) value = 0;
    int64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
  }

  Tensor keys_;  // whose strings are referred to
  std::unordered_map<std::string_view, int64_t> texts_;
  std::unordered_map<int64_t, int64_t> numbers_;
};

std::unique_ptr<Kernel> lookup(const Request& r) {
  const auto table = std::make_shared<const Table>(*table_tensor(r, "keys"));
  const Tensor values = *table_tensor(r, "values");
  const Tensor* given = table_tensor(r, "otherwise");
  const Tensor otherwise = given ? *given : Tensor{};
  const int64_t count = element_count(r.sizes(0));
  const std::string place = r.node().describe();
  return make_kernel("lookup", [=](const Args& args) {
    const size_t size = size_of(values.dtype);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = table->find(args.in[0], i);
      check(at >= 0 || otherwise.data, "[ort::Lookup] element {} is none of the keys; {}", i,
            place);
      const void* from = at >= 0 ? values.as<char>() + static_cast<size_t>(at) * size
                                 : static_cast<const void*>(otherwise.data);
      std::memcpy(static_cast<char*>(args.out[0]) + static_cast<size_t>(i) * size, from, size);
    }
  });
}

}  // namespace

static void register_reference_lookup(KernelTable& table) {
  table.op("ort::Lookup").add("lookup", kAny, lookup);
}

const Family<KernelTable> kLookupKernels("reference", "ml/lookup", register_reference_lookup);

}  // namespace ort::reference
