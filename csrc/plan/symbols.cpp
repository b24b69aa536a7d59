// Solving the dims of inputs for the numbers of a feed.
#include "csrc/plan/symbols.h"

namespace ort {
namespace {

// A quotient by a fed 0, or what overflows, is no size at all.
Verdict match_dim(const Dim& dim, int64_t size, const Symbols& symbols) {
  try {
    const int64_t expected = dim.evaluate(symbols);
    return require(expected == size, "is {}", expected);
  } catch (const Error& error) {
    return Verdict::no(format("is none: {}", error.what()));
  }
}

}  // namespace

Verdict match_symbols(const Graph& graph, std::span<const Sizes> input_sizes, size_t count,
                      Symbols& symbols) {
  const auto& inputs = graph.inputs();
  for (int pass = 0; pass < 2; ++pass)  // bare symbols first, then expressions are checked
    for (size_t i = 0; i < count; ++i) {
      const Type& type = graph.value(inputs[i]).type();
      if (!type.dims) continue;
      const std::string& name = graph.value(inputs[i]).name();
      if (type.dims->size() != input_sizes[i].size())
        return Verdict::no(format("input '{}' has shape {}, expected rank {} {}", name,
                                  input_sizes[i], type.dims->size(), *type.dims));
      for (size_t d = 0; d < type.dims->size(); ++d) {
        const Dim& dim = (*type.dims)[d];
        if (const auto symbol = dim.symbol_name(); symbol && pass == 0)
          symbols.emplace(*symbol, input_sizes[i][d]);
        if (pass == 0) continue;
        if (const Verdict fits = match_dim(dim, input_sizes[i][d], symbols); !fits)
          return Verdict::no(format("input '{}' has shape {}, expected {} (axis {} {})", name,
                                    input_sizes[i], *type.dims, d, fits.reason));
      }
    }
  return Verdict::yes();
}

Symbols solve_symbols(const Graph& graph, std::span<const Sizes> input_sizes, size_t count) {
  Symbols symbols;
  const Verdict fits = match_symbols(graph, input_sizes, count, symbols);
  check(fits.ok, "{}", fits.reason);
  return symbols;
}

}  // namespace ort
