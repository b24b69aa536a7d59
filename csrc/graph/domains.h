// The domains whose ops a file may have.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace ort {

struct OnnxDomain {
  std::string_view name;  // "" is ai.onnx
  int oldest, newest;     // opsets that are read; graphs are kept in the newest
  bool standard;          // ONNX's own: an export keeps its ops, those of others become their parts
};

inline constexpr OnnxDomain kOnnxDomains[] = {
    {"", 1, 28, true},
    {"ai.onnx.ml", 1, 5, true},
    {"ai.onnx.preview", 1, 1, true},
    {"ai.onnx.preview.training", 1, 1, true},
    {"com.microsoft", 1, 1, false},  // onnxruntime's
};
inline constexpr int kOpset = kOnnxDomains[0].newest;  // of ai.onnx, in which graphs are kept

// Null where files may not have its ops: our own, a torch library's, one of functions alone.
constexpr const OnnxDomain* onnx_domain(std::string_view name) {
  for (const OnnxDomain& domain : kOnnxDomains)
    if (domain.name == name) return &domain;
  return nullptr;
}

// The opsets that a model or a function imports, by domain; ai.onnx is "".
using Opsets = std::map<std::string, int, std::less<>>;

}  // namespace ort
