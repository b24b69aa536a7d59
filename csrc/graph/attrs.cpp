// Attributes: typed access, equality and text; the value of a constant.
#include <algorithm>
#include <bit>

#include "csrc/graph/schema.h"

namespace ort {
namespace {

template <class T>
const T& typed(const Attrs& attrs, std::string_view name, const char* kind) {
  const Attr* attr = attrs.find(name);
  check(attr != nullptr, "attribute '{}' is missing", name);
  const T* value = std::get_if<T>(attr);
  if (!value) fail("attribute '{}' is {}, expected {}", name, attr_text(*attr), kind);
  return *value;
}

std::string hex(const Tensor& tensor) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < tensor.bytes(); ++i) {
    text += kDigits[tensor.as<uint8_t>()[i] >> 4];
    text += kDigits[tensor.as<uint8_t>()[i] & 15];
  }
  return text;
}

std::string float_text(double value) {
  std::ostringstream out;
  out.precision(17);
  out << value;
  std::string text = out.str();
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (c == '\n')
      result += "\\n";
    else
      result += c;
  }
  return result + "\"";
}

// Small tensors print their elements, middling and complex ones their bytes, large ones only their
// size.
std::string tensor_text(const Tensor& tensor) {
  std::string text = format("{}{}", tensor.dtype, tensor.sizes);
  if (tensor.dtype == DType::string || tensor.bytes() > 4096) return text + "{...}";
  if (tensor.count() > 8 || is_complex(tensor.dtype)) return text + "x" + hex(tensor);
  std::string values;
  for (int64_t i = 0; i < tensor.count(); ++i)
    values += (i ? ", " : "") + (is_floating(tensor.dtype) || is_narrow_float(tensor.dtype)
                                     ? float_text(element_as_double(tensor, i))
                                     : std::to_string(element_as_int(tensor, i)));
  return text + "{" + values + "}";
}

}  // namespace

const Attr* Attrs::find(std::string_view name) const {
  const auto found = items_.find(name);
  return found == items_.end() ? nullptr : found->second.get();
}

void Attrs::erase(std::string_view name) {
  const auto found = items_.find(name);
  if (found != items_.end()) items_.erase(found);
}

int64_t Attrs::i(std::string_view name) const {
  return typed<int64_t>(*this, name, "an int");
}
int64_t Attrs::i(std::string_view name, int64_t otherwise) const {
  return has(name) ? i(name) : otherwise;
}
double Attrs::f(std::string_view name) const {
  return typed<double>(*this, name, "a float");
}
double Attrs::f(std::string_view name, double otherwise) const {
  return has(name) ? f(name) : otherwise;
}
const std::string& Attrs::s(std::string_view name) const {
  return typed<std::string>(*this, name, "a string");
}
std::string Attrs::s(std::string_view name, std::string otherwise) const {
  return has(name) ? s(name) : otherwise;
}
const std::vector<int64_t>& Attrs::ints(std::string_view name) const {
  return typed<std::vector<int64_t>>(*this, name, "a list of ints");
}

template <class Item>
const std::vector<Item>& Attrs::list(std::string_view name) const {
  static const std::vector<Item> none;
  constexpr bool is_int = std::is_same_v<Item, int64_t>, is_float = std::is_same_v<Item, double>;
  constexpr auto kKind = is_int     ? "a list of ints"
                         : is_float ? "a list of floats"
                                    : "a list of strings";
  return has(name) ? typed<std::vector<Item>>(*this, name, kKind) : none;
}
template const std::vector<int64_t>& Attrs::list(std::string_view) const;
template const std::vector<double>& Attrs::list(std::string_view) const;
template const std::vector<std::string>& Attrs::list(std::string_view) const;

bool operator==(const Attrs& a, const Attrs& b) {
  return std::ranges::equal(a.items_, b.items_, [](const auto& x, const auto& y) {
    return x.first == y.first && (x.second == y.second || same_attr(*x.second, *y.second));
  });
}

// By bits: zero has two signs.
static bool same_number(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

bool same_attr(const Attr& a, const Attr& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&]<class T>(const T& x) {
        const T& y = std::get<T>(b);
        if constexpr (std::is_same_v<T, Tensor>)
          return same_bytes(x, y);
        else if constexpr (std::is_same_v<T, double>)
          return same_number(x, y);
        else if constexpr (std::is_same_v<T, std::vector<double>>)
          return std::ranges::equal(x, y, same_number);
        else
          return x == y;
      },
      a);
}

std::string attr_text(const Attr& attr) {
  std::ostringstream out;
  out.precision(17);
  std::visit(
      [&]<class T>(const T& x) {
        if constexpr (std::is_same_v<T, Tensor>) {
          out << tensor_text(x);
        } else if constexpr (std::is_same_v<T, std::string>) {
          out << quoted(x);
        } else if constexpr (std::is_same_v<T, double>) {
          out << float_text(x);
        } else if constexpr (std::is_same_v<T, std::vector<double>>) {
          std::vector<std::string> texts;
          for (const double item : x) texts.push_back(float_text(item));
          append(out, texts);
        } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          std::vector<std::string> texts;
          for (const std::string& item : x) texts.push_back(quoted(item));
          append(out, texts);
        } else if constexpr (std::is_same_v<T, Dims>) {
          out << "dims";
          append(out, x);
        } else {
          append(out, x);
        }
      },
      attr);
  return out.str();
}

const Tensor* constant_of(Value value) {
  if (!value || !value.producer() || !value.producer()->schema->is_constant()) return nullptr;
  return std::get_if<Tensor>(value.producer()->attrs.find("value"));
}

std::optional<double> scalar_of(Value value) {
  const Tensor* tensor = constant_of(value);
  const bool number = tensor && tensor->dtype != DType::string && !is_complex(tensor->dtype);
  if (!number || tensor->count() != 1) return std::nullopt;
  return element_as_double(*tensor, 0);
}

}  // namespace ort
