// The CPU provider's LSTM against the reference provider's.
#include <cmath>

#include "tests/cpp/cpu/cpu_run.h"

namespace ort {
namespace {

TEST(CpuLstm, ForwardAndGradientMatchReference) {
  const int64_t T = 5, B = 3, I = 4, H = 6;
  for (const char* direction : {"forward", "reverse", "bidirectional"}) {
    const int64_t D = std::string(direction) == "bidirectional" ? 2 : 1;
    Graph g(default_ops());
    std::map<std::string, Tensor> feed;
    unsigned seed = 1;
    const auto input = [&](const char* name, const Sizes& sizes) {
      feed[name] = random_tensor(sizes, seed++, 0.5f);
      return g.input(name, f32(sizes));
    };
    const Value x = input("x", {T, B, I}), w = input("w", {D, 4 * H, I});
    const Value r = input("r", {D, 4 * H, H}), b = input("b", {D, 8 * H});
    const Value h0 = input("h0", {D, B, H}), c0 = input("c0", {D, B, H});
    const Attrs attrs{{"direction", std::string(direction)}};
    std::vector<Value> out =
        g.emit("LSTM", std::vector<Value>{x, w, r, b, Value{}, h0, c0}, attrs, 4);
    const std::vector<Value> back{input("dy", {T, D, B, H}),
                                  input("dh", {D, B, H}),
                                  input("dc", {D, B, H}),
                                  x,
                                  w,
                                  r,
                                  h0,
                                  c0,
                                  out[0],
                                  out[3]};
    const auto grads = g.emit("ort::LSTMGrad", back, attrs, 6);
    out.insert(out.end(), grads.begin(), grads.end());
    for (const Value v : out) g.output(v, "out");
    const CpuRun got = run_on_cpu(g, feed), want = run_on("reference", g, feed);
    for (size_t o = 0; o < out.size(); ++o)
      for (int64_t i = 0; i < got[out[o]].count(); ++i)
        ASSERT_NEAR(got[out[o]].as<float>()[i], want[out[o]].as<float>()[i], 2e-5)
            << direction << " output " << o;
  }
}

}  // namespace
}  // namespace ort
