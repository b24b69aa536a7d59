// The layers, and how their activations are spelled.
#include "csrc/ops/recurrent/layer.h"

#include <algorithm>

namespace ort::recurrent {
namespace {

// A function by its name in small letters, and its numbers where a file gives none: those of ONNX's
// operator of the name, as its text says. ONNX has no Affine and ScaledTanh any more; theirs change
// nothing. (onnxruntime takes 0 for the numbers of these two and of ThresholdedRelu.)
struct Known {
  std::string_view name;
  Function function;
  bool has_alpha = false, has_beta = false;
  double alpha = 0.0, beta = 0.0;
};

constexpr Known kKnown[] = {
    {"affine", Function::affine, true, true, 1.0, 0.0},
    {"elu", Function::elu, true, false, 1.0},
    {"hardsigmoid", Function::hard_sigmoid, true, true, 0.2, 0.5},
    {"leakyrelu", Function::leaky_relu, true, false, 0.01},
    {"relu", Function::relu},
    {"scaledtanh", Function::scaled_tanh, true, true, 1.0, 1.0},
    {"sigmoid", Function::sigmoid},
    {"softplus", Function::softplus},
    {"softsign", Function::softsign},
    {"tanh", Function::tanh},
    {"thresholdedrelu", Function::thresholded_relu, true, false, 1.0},
};

std::string in_small_letters(std::string name) {
  for (char& c : name)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return name;
}

const Known& known(const std::string& name) {
  std::string all;
  const std::string small = in_small_letters(name);
  for (const Known& one : kKnown) {
    if (one.name == small) return one;
    all += format("{}{}", all.empty() ? "" : ", ", one.name);
  }
  fail("activation '{}' is not known, expected one of {}", name, all);
}

}  // namespace

const Kind& lstm() {
  static const Kind kind{"LSTM", 4, 2, 5, {Function::sigmoid, Function::tanh, Function::tanh}};
  return kind;
}

const Kind& gru() {
  static const Kind kind{"GRU", 3, 1, 4, {Function::sigmoid, Function::tanh}};
  return kind;
}

const Kind& rnn() {
  static const Kind kind{"RNN", 1, 1, 1, {Function::tanh}};
  return kind;
}

int64_t directions_of(const Attrs& attrs) {
  return attrs.s("direction") == "bidirectional" ? 2 : 1;
}

std::vector<Activation> activations_of(const Kind& kind, const Attrs& attrs, int64_t directions) {
  std::vector<Activation> made;
  const size_t each = kind.usual.size(), wanted = each * static_cast<size_t>(directions);
  const auto& names = attrs.list<std::string>("activations");
  if (names.empty()) {
    for (size_t i = 0; i < wanted; ++i) made.push_back({kind.usual[i % each]});
    return made;
  }
  // RNN's default has two names, whatever its direction is.
  check(names.size() == wanted || names.size() == 2 * each,
        "activations has {} names, expected {}: {} for each direction", names.size(), wanted, each);
  const auto &alphas = attrs.list<double>("activation_alpha"),
             &betas = attrs.list<double>("activation_beta");
  size_t alpha = 0, beta = 0;
  for (const std::string& name : names) {
    const Known& one = known(name);
    made.push_back({one.function, one.alpha, one.beta});
    if (one.has_alpha && alpha < alphas.size()) made.back().alpha = alphas[alpha++];
    if (one.has_beta && beta < betas.size()) made.back().beta = betas[beta++];
  }
  made.resize(wanted);
  return made;
}

bool is_usual(const Kind& kind, const Attrs& attrs) {
  if (attrs.f("clip", 0.0) > 0.0) return false;
  const auto all = activations_of(kind, attrs, directions_of(attrs));
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].function != kind.usual[i % kind.usual.size()]) return false;
  return true;
}

bool reads_gates(const Kind& kind, const Attrs& attrs) {
  if (kind.gates > 1 || attrs.f("clip", 0.0) > 0.0) return true;
  const auto all = activations_of(kind, attrs, directions_of(attrs));
  return !std::all_of(all.begin(), all.end(), [](const Activation& one) {
    return one.function == Function::tanh || one.function == Function::relu ||
           one.function == Function::sigmoid;
  });
}

}  // namespace ort::recurrent
