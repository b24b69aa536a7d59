// Maps made of rows, and rows made of maps.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <numeric>
#include <unordered_map>

#include "providers/host_kernel.h"
#include "providers/kernel_table.h"

namespace ort {
namespace {

using Items = std::vector<Item>;

Tensor keys_of(const Attrs& attrs, const char* ints, const char* strings) {
  const auto& texts = attrs.list<std::string>(strings);
  if (!texts.empty()) return Tensor::of_strings(texts, {static_cast<int64_t>(texts.size())});
  return Tensor::of(attrs.ints(ints));
}

// Element i of a tensor, where it lies.
Tensor element(const Tensor& of, int64_t i) {
  Tensor one = of;
  one.sizes.clear();
  one.data = static_cast<char*>(of.data) + static_cast<size_t>(i) * size_of(of.dtype);
  return one;
}

Items zip(const HostCall& c) {
  const Tensor& x = c.tensor();
  const Tensor labels = keys_of(c.attrs(), "classlabels_int64s", "classlabels_strings");
  c.require(!x.sizes.empty() && x.sizes.size() <= 2 && x.sizes.back() == labels.count(),
            "X has shape {}, expected [N, {}]", x.sizes, labels.count());
  const int64_t rows = x.sizes.size() == 1 ? 1 : x.sizes[0];
  Items maps;
  maps.reserve(static_cast<size_t>(rows));
  for (int64_t row = 0; row < rows; ++row) {
    Items values;
    values.reserve(static_cast<size_t>(labels.count()));
    for (int64_t k = 0; k < labels.count(); ++k)
      values.push_back(element(x, row * labels.count() + k));
    maps.push_back(Map{labels, Sequence(std::move(values))});
  }
  return {Sequence(std::move(maps))};
}

const Map& map_in(const HostCall& c) {
  return std::get<Map>(c.item(0));
}

// The value of each key, which is a tensor of one element.
const Tensor& value_of(const HostCall& c, const Map& map, size_t i) {
  const Item& value = map.values.items()[i];
  c.require(value.is_tensor() && value.tensor().count() == 1,
            "value {} of the map is no single element", i);
  return value.tensor();
}

template <class Key>
std::unordered_map<Key, size_t> places_of(const Tensor& keys, auto&& key) {
  std::unordered_map<Key, size_t> places;
  for (int64_t i = 0; i < keys.count(); ++i) places[key(keys, i)] = static_cast<size_t>(i);
  return places;
}

// For each key of a vocabulary f(its place, the place of its value) where the map has one.
template <class Key>
void each_known(const Tensor& vocabulary, const Tensor& keys, auto&& key, auto&& f) {
  const auto places = places_of<Key>(keys, key);
  for (int64_t i = 0; i < vocabulary.count(); ++i)
    if (const auto at = places.find(key(vocabulary, i)); at != places.end()) f(i, at->second);
}

Items vectorize(const HostCall& c) {
  const Map& map = map_in(c);
  const Tensor vocabulary = keys_of(c.attrs(), "int64_vocabulary", "string_vocabulary");
  const DType dtype = c.node().output().type().dtype;
  Tensor row = Tensor::empty(dtype, {1, vocabulary.count()});
  std::vector<std::string> texts(dtype == DType::string ? static_cast<size_t>(row.count()) : 0);
  const auto put = [&](int64_t at, size_t from) {
    const Tensor& value = value_of(c, map, from);
    if (dtype == DType::string)
      texts[static_cast<size_t>(at)] = text_of(value, 0);
    else
      std::memcpy(row.as<char>() + static_cast<size_t>(at) * size_of(dtype), value.data,
                  size_of(dtype));
  };
  if (vocabulary.dtype == DType::string)
    each_known<std::string_view>(
        vocabulary, map.keys,
        [](const Tensor& of, int64_t i) -> std::string_view { return text_of(of, i); }, put);
  else
    each_known<int64_t>(
        vocabulary, map.keys, [](const Tensor& of, int64_t i) { return element_as_int(of, i); },
        put);
  if (dtype == DType::string) return {Tensor::of_strings(std::move(texts), row.sizes)};
  return {std::move(row)};
}

// --- CastMap ---

struct Cell {
  double number = 0;
  std::string text = "0.f";  // as onnxruntime fills a row of strings
};

Cell cell_of(const HostCall& c, const Tensor& value) {
  Cell cell;
  if (value.dtype == DType::string) {
    cell.text = text_of(value, 0);
    const char *begin = cell.text.data(), *end = begin + cell.text.size();
    const auto read = std::from_chars(begin, end, cell.number);
    const bool needed = c.attrs().s("cast_to") != "TO_STRING";
    c.require(!needed || (read.ec == std::errc() && read.ptr == end), "'{}' is no number",
              cell.text);
    return cell;
  }
  cell.number = element_as_double(value, 0);
  char text[512];  // six digits behind the point, as C writes them
  cell.text.assign(text, static_cast<size_t>(std::snprintf(text, sizeof text, "%f", cell.number)));
  return cell;
}

// In the order of their keys; SPARSE: each at its key, those from max_map on left out.
std::vector<Cell> cells_of(const HostCall& c, const Map& map) {
  std::vector<int64_t> order(static_cast<size_t>(map.keys.count()));
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](int64_t i) { return element_as_int(map.keys, i); };
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return key(a) < key(b); });
  const bool dense = c.attrs().s("map_form") == "DENSE";
  std::vector<Cell> cells(dense ? 0 : static_cast<size_t>(c.attrs().i("max_map")));
  for (const int64_t i : order) {
    const Cell cell = cell_of(c, value_of(c, map, static_cast<size_t>(i)));
    c.require(dense || key(i) >= 0, "the map has key {}, expected none below 0", key(i));
    if (dense)
      cells.push_back(cell);
    else if (key(i) < static_cast<int64_t>(cells.size()))
      cells[static_cast<size_t>(key(i))] = cell;
  }
  return cells;
}

Items cast(const HostCall& c) {
  const std::vector<Cell> cells = cells_of(c, map_in(c));
  const DType dtype = c.node().output().type().dtype;
  const Sizes sizes = {1, static_cast<int64_t>(cells.size())};
  if (dtype == DType::string) {
    std::vector<std::string> texts;
    for (const Cell& cell : cells) texts.push_back(cell.text);
    return {Tensor::of_strings(std::move(texts), sizes)};
  }
  Tensor row = Tensor::empty(dtype, sizes);
  for (size_t i = 0; i < cells.size(); ++i)
    set_element(row, static_cast<int64_t>(i), cells[i].number);
  return {std::move(row)};
}

}  // namespace

static void register_host_maps(HostTable& table) {
  table["ai.onnx.ml::ZipMap"] = {kAnything, zip};
  table["ai.onnx.ml::DictVectorizer"] = {kAnything, vectorize};
  table["ai.onnx.ml::CastMap"] = {kAnything, cast};
}

const Family<HostTable> kMapsKernels("host", "maps", register_host_maps);

}  // namespace ort
