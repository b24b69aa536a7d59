// Activations that are no definition.
#include <cmath>

#include "providers/reference/map.h"

namespace ort::reference {

void register_activation(Kernels& kernels) {
  kernels.add("Tanh",
              [](const Call& c) { map1<double>(c, [](double x) { return std::tanh(x); }); });
  kernels.add("Sigmoid", [](const Call& c) {
    map1<double>(c, [](double x) { return 1.0 / (1.0 + std::exp(-x)); });
  });
  kernels.add("Relu", unary([](auto x) { return x < 0 ? decltype(x)(0) : x; }));
}

}  // namespace ort::reference
