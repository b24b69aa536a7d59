// The numbers of an ONNX file: attributes, sizes, elements of small integer tensors. Written anew
// one by one, with the lengths of the messages around them right, so that they reach shape rules.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace numbers {

using Change = std::function<uint64_t(uint64_t)>;

// What a field holds: one number or a packed list, eight raw bytes each, or a message.
struct Message;
struct Field {
  enum class Kind : uint8_t { varint, raw, message } kind;
  const Message* message = nullptr;
};
struct Message {
  std::map<uint64_t, Field> fields;
};

inline const Message& model_message() {
  using enum Field::Kind;
  static const Message tensor{{{1, {varint}}, {7, {varint}}, {9, {raw}}}};
  static const Message attribute{{{3, {varint}}, {8, {varint}}, {5, {message, &tensor}}}};
  static const Message node{{{5, {message, &attribute}}}};
  static const Message dim{{{1, {varint}}}};
  static const Message shape{{{1, {message, &dim}}}};
  static const Message of_tensor{{{2, {message, &shape}}}};
  static const Message type{{{1, {message, &of_tensor}}}};
  static const Message info{{{2, {message, &type}}}};
  static const Message graph{
      {{1, {message, &node}}, {5, {message, &tensor}}, {11, {message, &info}}}};
  static const Message model{{{7, {message, &graph}}}};
  return model;
}

inline void put(std::string& bytes, uint64_t value) {
  for (; value >= 128; value >>= 7) bytes += static_cast<char>(value | 128);
  bytes += static_cast<char>(value);
}

inline bool take(std::string_view& bytes, uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 127) << shift;
    if (byte < 128) return true;
  }
  return false;
}

inline std::string changed_list(std::string_view bytes, const Change& change) {
  std::string result;
  for (uint64_t value; !bytes.empty() && take(bytes, value);) put(result, change(value));
  return result;
}

inline std::string changed_raw(std::string_view bytes, const Change& change) {
  constexpr size_t kMost = 32 * sizeof(uint64_t);
  std::string result(bytes);
  if (bytes.size() % sizeof(uint64_t) != 0 || bytes.size() > kMost) return result;
  for (size_t at = 0; at < result.size(); at += sizeof(uint64_t)) {
    uint64_t value;
    std::memcpy(&value, result.data() + at, sizeof value);
    value = change(value);
    std::memcpy(result.data() + at, &value, sizeof value);
  }
  return result;
}

// The message with change(number) in place of each number; from where it is broken on, as it is.
inline std::string changed(std::string_view bytes, const Message& message, const Change& change) {
  std::string result;
  while (!bytes.empty()) {
    const std::string_view rest = bytes;
    uint64_t key, number;
    const bool read = take(bytes, key) && ((key & 7) == 0 || (key & 7) == 2) && take(bytes, number);
    if (!read || ((key & 7) == 2 && number > bytes.size())) return result.append(rest);
    const auto field = message.fields.find(key >> 3);
    const bool known = field != message.fields.end();
    put(result, key);
    if ((key & 7) == 0) {
      put(result, known && field->second.kind == Field::Kind::varint ? change(number) : number);
      continue;
    }
    std::string inside(bytes.substr(0, number));
    bytes.remove_prefix(number);
    if (known && field->second.kind == Field::Kind::varint) inside = changed_list(inside, change);
    if (known && field->second.kind == Field::Kind::raw) inside = changed_raw(inside, change);
    if (known && field->second.message) inside = changed(inside, *field->second.message, change);
    put(result, inside.size());
    result += inside;
  }
  return result;
}

// The model with its number `at` replaced, counted over all of them.
inline std::string with_number(std::string_view bytes, size_t at, uint64_t value) {
  size_t seen = 0;
  return changed(bytes, model_message(), [&](uint64_t old) { return seen++ == at ? value : old; });
}

inline size_t count(std::string_view bytes) {
  size_t seen = 0;
  changed(bytes, model_message(), [&](uint64_t old) { return ++seen, old; });
  return seen;
}

}  // namespace numbers
