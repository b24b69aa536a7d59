// Activations that are no definition.
#include <cmath>

#include "providers/reference/map.h"

namespace ort::reference {

static void register_activation(KernelTable& table) {
  add(table, "Tanh", kNumbers,
      [](const KernelCall& c) { map1<double>(c, [](double x) { return std::tanh(x); }); });
  add(table, "Sigmoid", kNumbers, [](const KernelCall& c) {
    map1<double>(c, [](double x) { return 1.0 / (1.0 + std::exp(-x)); });
  });
  add(table, "Relu", kNumbers, unary([](auto x) { return x < 0 ? decltype(x)(0) : x; }));
}

const Family<KernelTable> kActivationKernels("reference", "activation", register_activation);

}  // namespace ort::reference
