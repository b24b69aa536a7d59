// Attributes to IValues by the types that the operator's schema gives its arguments.
#include "providers/aten/arguments.h"

#include <ATen/core/List.h>

#include "csrc/torch_bridge/exchange/memory.h"
#include "csrc/torch_bridge/internals/new_tensor.h"

namespace ort::aten {
namespace {

using c10::IValue;
using c10::TypeKind;

struct Decoder {
  const Node& node;
  const std::string& name;  // of the argument
  const Symbols& symbols;

  [[noreturn]] void refuse(const Attr& attr, const char* expected) const {
    fail("[{}] argument '{}' is {}, expected {}; {}", node.qualified(), name, attr_text(attr),
         expected, node.describe());
  }

  // Sizes are text when they are no numbers: "2*s0".
  int64_t size(const std::string& text) const { return Dim::parse(text).evaluate(symbols); }

  int64_t integer(const Attr& attr) const {
    if (const auto* number = std::get_if<int64_t>(&attr)) return *number;
    if (const auto* text = std::get_if<std::string>(&attr)) return size(*text);
    refuse(attr, "an int or a size");
  }

  double real(const Attr& attr) const {
    if (const auto* number = std::get_if<double>(&attr)) return *number;
    return static_cast<double>(integer(attr));
  }

  // A Python number, which keeps its kind: True is no 1, and a complex one is its two parts.
  at::Scalar scalar(const Attr& attr) const {
    if (const auto* parts = std::get_if<std::vector<double>>(&attr)) {
      if (parts->size() != 2) refuse(attr, "a number");
      return c10::complex<double>((*parts)[0], (*parts)[1]);
    }
    if (const auto* number = std::get_if<double>(&attr)) return *number;
    if (const auto* text = std::get_if<std::string>(&attr))
      if (*text == "True" || *text == "False") return at::Scalar(*text == "True");
    return integer(attr);
  }

  std::vector<int64_t> integers(const Attr& attr) const {
    if (const auto* numbers = std::get_if<std::vector<int64_t>>(&attr)) return *numbers;
    if (const auto* dims = std::get_if<Dims>(&attr)) return numbers_of(*dims, symbols);
    std::vector<int64_t> result;
    const auto* texts = std::get_if<std::vector<std::string>>(&attr);
    if (!texts) refuse(attr, "a list of sizes");
    for (const std::string& text : *texts) result.push_back(size(text));
    return result;
  }

  std::vector<double> reals(const Attr& attr) const {
    if (const auto* numbers = std::get_if<std::vector<double>>(&attr)) return *numbers;
    const std::vector<int64_t> whole = integers(attr);
    return {whole.begin(), whole.end()};
  }

  const std::string& text(const Attr& attr) const {
    const auto* found = std::get_if<std::string>(&attr);
    if (!found) refuse(attr, "text");
    return *found;
  }

  // By name; the defaults in schemas are numbers.
  IValue dtype(const Attr& attr) const {
    if (const auto* number = std::get_if<int64_t>(&attr)) return *number;
    return bridge::scalar_type_of(dtype_named(text(attr)));
  }

  IValue layout(const Attr& attr) const {
    if (text(attr) != "strided") refuse(attr, "strided");
    return at::kStrided;
  }

  IValue memory_format(const Attr& attr) const {
    const std::string& format = text(attr);
    if (format == "contiguous_format") return at::MemoryFormat::Contiguous;
    if (format == "preserve_format") return at::MemoryFormat::Preserve;
    if (format == "channels_last") return at::MemoryFormat::ChannelsLast;
    if (format == "channels_last_3d") return at::MemoryFormat::ChannelsLast3d;
    refuse(attr, "a memory format");
  }

  IValue list(const c10::TypePtr& element, const Attr& attr) const {
    switch (element->kind()) {
      case TypeKind::IntType:
      case TypeKind::SymIntType:
        return c10::List<int64_t>(integers(attr));
      case TypeKind::FloatType:
        return c10::List<double>(reals(attr));
      case TypeKind::BoolType: {
        c10::List<bool> flags;
        for (const int64_t flag : integers(attr)) flags.push_back(flag != 0);
        return flags;
      }
      default:
        fail("[{}] argument '{}' is a list of {}, which an aten node cannot hold; {}",
             node.qualified(), name, element->str(), node.describe());
    }
  }

  IValue value(const c10::TypePtr& type, const Attr& attr) const {
    switch (type->kind()) {
      case TypeKind::OptionalType:
        return value(type->expectRef<c10::OptionalType>().getElementType(), attr);
      case TypeKind::ListType:
        return list(type->expectRef<c10::ListType>().getElementType(), attr);
      case TypeKind::TensorType:
        return bridge::wrapped_number(scalar(attr));
      case TypeKind::IntType:
      case TypeKind::SymIntType:
        return integer(attr);
      case TypeKind::FloatType:
        return real(attr);
      case TypeKind::BoolType:
        return integer(attr) != 0;
      case TypeKind::NumberType:
        return scalar(attr);
      case TypeKind::StringType:
        return text(attr);
      case TypeKind::DeviceObjType:
        return c10::Device(text(attr));
      case TypeKind::ScalarTypeType:
        return dtype(attr);
      case TypeKind::LayoutType:
        return layout(attr);
      case TypeKind::MemoryFormatType:
        return memory_format(attr);
      default:
        fail("[{}] argument '{}' is a {}, which an aten node cannot hold; {}", node.qualified(),
             name, type->str(), node.describe());
    }
  }
};

// The element type of a list of tensors, optional or not; null for another type.
c10::TypePtr type_of_tensors(c10::TypePtr type) {
  if (type->kind() == TypeKind::OptionalType)
    type = type->expectRef<c10::OptionalType>().getElementType();
  if (type->kind() != TypeKind::ListType) return nullptr;
  const c10::TypePtr element = type->expectRef<c10::ListType>().getElementType();
  return element->isSubtypeOf(*c10::OptionalType::ofTensor()) ? element : nullptr;
}

c10::List<at::Tensor> list_of(std::span<const at::Tensor> tensors) {
  c10::List<at::Tensor> list;
  for (const at::Tensor& tensor : tensors) list.push_back(tensor);
  return list;
}

c10::List<std::optional<at::Tensor>> optional_list_of(std::span<const at::Tensor> tensors) {
  c10::List<std::optional<at::Tensor>> list;
  for (const at::Tensor& tensor : tensors)
    list.push_back(tensor.defined() ? std::optional(tensor) : std::nullopt);
  return list;
}

}  // namespace

Arguments::Arguments(const Node& node, const c10::FunctionSchema& schema, const Symbols& symbols) {
  size_t next = 0;
  for (const c10::Argument& argument : schema.arguments()) {
    const Attr* attr = node.attrs.find(argument.name());
    const Decoder decoder{node, argument.name(), symbols};
    Slot slot;
    IValue value;
    if (const c10::TypePtr element = type_of_tensors(argument.real_type()); element && attr) {
      slot.kind =
          element->kind() == TypeKind::TensorType ? Slot::Kind::list : Slot::Kind::optional_list;
      slot.count = static_cast<size_t>(decoder.integer(*attr));
    } else if (attr) {
      value = decoder.value(argument.real_type(), *attr);
    } else if (argument.real_type()->isSubtypeOf(*c10::OptionalType::ofTensor())) {
      slot.kind = Slot::Kind::tensor;
      slot.count = 1;
    } else if (argument.default_value()) {
      value = *argument.default_value();
    }
    slot.first = next;
    next += slot.count;
    slots_.push_back(slot);
    values_.push_back(std::move(value));
  }
  check(next == node.in.size(), "[{}] has {} inputs, its arguments take {}; {}", node.qualified(),
        node.in.size(), next, node.describe());
}

torch::jit::Stack Arguments::with(std::span<const at::Tensor> tensors) const {
  torch::jit::Stack stack;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    const auto mine = tensors.subspan(slot.first, slot.count);
    switch (slot.kind) {
      case Slot::Kind::fixed:
        stack.push_back(values_[i]);
        break;
      case Slot::Kind::tensor:
        stack.push_back(mine[0].defined() ? IValue(mine[0]) : IValue());
        break;
      case Slot::Kind::list:
        stack.emplace_back(list_of(mine));
        break;
      case Slot::Kind::optional_list:
        stack.emplace_back(optional_list_of(mine));
        break;
    }
  }
  return stack;
}

}  // namespace ort::aten
