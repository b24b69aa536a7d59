// Movement, index, reduction and plain kernels of the CPU provider against direct loops.
#include <cmath>
#include <limits>

#include "tests/cpp/cpu/cpu_run.h"

namespace ort {
namespace {

Tensor counting(Sizes sizes) {
  Tensor tensor = Tensor::empty(DType::f32, std::move(sizes));
  for (int64_t i = 0; i < tensor.count(); ++i) tensor.as<float>()[i] = static_cast<float>(i);
  return tensor;
}

std::vector<float> floats(const Tensor& t) {
  return {t.as<float>(), t.as<float>() + t.count()};
}

TEST(CpuMovement, TransposesOfAllKinds) {
  for (const auto& [sizes, perm] :
       std::vector<std::pair<Sizes, std::vector<int64_t>>>{{{3, 5}, {1, 0}},
                                                           {{2, 3, 4, 5}, {0, 2, 1, 3}},
                                                           {{2, 3, 4, 5}, {0, 2, 3, 1}},
                                                           {{40, 33}, {1, 0}},
                                                           {{2, 3, 4}, {2, 1, 0}},
                                                           {{4, 1, 3}, {1, 2, 0}},
                                                           {{0, 3}, {1, 0}}}) {
    Graph g(default_ops());
    const Value y = transpose(g.input("x", f32(sizes)), perm);
    g.output(y, "y");
    const CpuRun run = run_on_cpu(g, {{"x", counting(sizes)}});
    const Tensor& out = run[y];
    Sizes own(sizes.size(), 1);
    for (size_t i = sizes.size(); i-- > 1;) own[i - 1] = own[i] * sizes[i];
    for (int64_t i = 0; i < out.count(); ++i) {
      int64_t rest = i, from = 0;
      for (size_t axis = perm.size(); axis-- > 0; rest /= out.sizes[axis])
        from += rest % out.sizes[axis] * own[static_cast<size_t>(perm[axis])];
      ASSERT_EQ(out.as<float>()[i], static_cast<float>(from));
    }
  }
}

TEST(CpuMovement, SlicesAndTheirGradients) {
  Graph g(default_ops());
  const Value x = g.input("x", f32({4, 6}));
  const Value back = slice(x, 1, 5, -100, -2);
  const Value mid = slice(x, 0, 1, 3);
  const std::vector<Value> in{mid, g.ints({1}), g.ints({0}), g.ints({1})};
  const Value grad = g.emit("ort::SliceGrad", in, {{"dims", fixed({4, 6})}})[0];
  for (const Value v : {back, mid, grad}) g.output(v, "out");
  const CpuRun run = run_on_cpu(g, {{"x", counting({4, 6})}});
  EXPECT_EQ(floats(run[back]), (std::vector<float>{5, 3, 1, 11, 9, 7, 17, 15, 13, 23, 21, 19}));
  for (int i = 0; i < 24; ++i)
    EXPECT_EQ(run[grad].as<float>()[i], i >= 6 && i < 18 ? static_cast<float>(i) : 0.0f);
}

TEST(CpuMovement, ConcatSplitTileTriluPad) {
  Graph g(default_ops());
  const Value x = g.input("x", f32({2, 3}));
  const Value two = concat({x, x + 1.0}, 1);
  const std::vector<Value> split_in{two, g.ints({1, 5})};
  const auto parts = g.emit("Split", split_in, {{"axis", int64_t{1}}}, 2);
  const Value tiled = g.emit1("Tile", {x, g.ints({2, 2})});
  const Value upper = g.emit1("Trilu", {x, Value{}}, {{"upper", int64_t{1}}});
  const Value lower = g.emit1("Trilu", {x, Value{}}, {{"upper", int64_t{0}}});
  const Value padded = pad_axis(x, 1, 1, 2);
  const Value reflected =
      g.emit1("Pad", {x, g.ints({0, 2, 0, 1})}, {{"mode", std::string("reflect")}});
  for (const Value v : {two, parts[0], parts[1], tiled, upper, lower, padded, reflected})
    g.output(v, "out");
  const CpuRun run = run_on_cpu(g, {{"x", counting({2, 3})}});
  using F = std::vector<float>;
  EXPECT_EQ(floats(run[two]), (F{0, 1, 2, 1, 2, 3, 3, 4, 5, 4, 5, 6}));
  EXPECT_EQ(floats(run[parts[0]]), (F{0, 3}));
  EXPECT_EQ(floats(run[parts[1]]), (F{1, 2, 1, 2, 3, 4, 5, 4, 5, 6}));
  EXPECT_EQ(floats(run[tiled]),
            (F{0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5, 0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5}));
  EXPECT_EQ(floats(run[upper]), (F{0, 1, 2, 0, 4, 5}));
  EXPECT_EQ(floats(run[lower]), (F{0, 0, 0, 3, 4, 0}));
  EXPECT_EQ(floats(run[padded]), (F{0, 0, 1, 2, 0, 0, 0, 3, 4, 5, 0, 0}));
  EXPECT_EQ(floats(run[reflected]), (F{2, 1, 0, 1, 2, 1, 5, 4, 3, 4, 5, 4}));
}

TEST(CpuIndex, GatherAndItsGradient) {
  Graph g(default_ops());
  const Value w = g.input("w", f32({5, 3}));
  const Value index = g.input("i", Type::tensor(DType::i64, fixed({2, 2})));
  const Value y = g.emit1("ort::Embedding", {w, index}, {{"padding_idx", int64_t{2}}});
  const Value cols = g.emit1("Gather", {w, g.ints({-1, 0})}, {{"axis", int64_t{1}}});
  const Value dw =
      g.emit1("ort::GatherGrad", {y, index},
              {{"axis", int64_t{0}}, {"dims", fixed({5, 3})}, {"padding_idx", int64_t{2}}});
  const Value dcols = g.emit1("ort::GatherGrad", {cols, g.ints({-1, 0})},
                              {{"axis", int64_t{1}}, {"dims", fixed({5, 3})}});
  for (const Value v : {y, cols, dw, dcols}) g.output(v, "out");
  Tensor it = Tensor::empty(DType::i64, {2, 2});
  const int64_t ids[] = {4, 2, 4, 0};
  std::copy(ids, ids + 4, it.as<int64_t>());
  const CpuRun run = run_on_cpu(g, {{"w", counting({5, 3})}, {"i", it}});
  using F = std::vector<float>;
  EXPECT_EQ(floats(run[y]), (F{12, 13, 14, 6, 7, 8, 12, 13, 14, 0, 1, 2}));
  EXPECT_EQ(floats(run[cols]), (F{2, 0, 5, 3, 8, 6, 11, 9, 14, 12}));
  EXPECT_EQ(floats(run[dw]), (F{0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 24, 26, 28}));
  EXPECT_EQ(floats(run[dcols]), (F{0, 0, 2, 3, 0, 5, 6, 0, 8, 9, 0, 11, 12, 0, 14}));
  it.as<int64_t>()[3] = 5;
  try {
    run_on_cpu(g, {{"w", counting({5, 3})}, {"i", it}});
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[ort::Embedding] index 5 is out of range, expected 0 to 4");
  }
}

TEST(CpuIndex, ScattersAndElements) {
  Graph g(default_ops());
  const Value x = g.input("x", f32({3, 3}));
  const Value index = g.input("i", Type::tensor(DType::i64, fixed({1, 3})));
  const Value updates = g.input("u", f32({1, 3}));
  const Value taken = g.emit1("GatherElements", {x, index}, {{"axis", int64_t{0}}});
  const Value added = g.emit1("ScatterElements", {x, index, updates},
                              {{"axis", int64_t{0}}, {"reduction", std::string("add")}});
  Tensor pairs = Tensor::empty(DType::i64, {2, 2});
  const int64_t at[] = {2, 1, 0, -1};
  std::copy(at, at + 4, pairs.as<int64_t>());
  const Value tuples = g.emit1("GatherND", {x, g.constant(pairs)});
  const Value placed = g.emit1("ScatterND", {x, g.constant(pairs), tuples * 10.0});
  for (const Value v : {taken, added, tuples, placed}) g.output(v, "out");
  Tensor it = Tensor::empty(DType::i64, {1, 3});
  const int64_t ids[] = {2, 0, -2};
  std::copy(ids, ids + 3, it.as<int64_t>());
  const CpuRun run = run_on_cpu(g, {{"x", counting({3, 3})}, {"i", it}, {"u", counting({1, 3})}});
  using F = std::vector<float>;
  EXPECT_EQ(floats(run[taken]), (F{6, 1, 5}));
  EXPECT_EQ(floats(run[added]), (F{0, 2, 2, 3, 4, 7, 6, 7, 8}));
  EXPECT_EQ(floats(run[tuples]), (F{7, 2}));
  EXPECT_EQ(floats(run[placed]), (F{0, 1, 20, 3, 4, 5, 6, 70, 8}));
}

TEST(CpuReduce, AnyAxes) {
  const Sizes sizes{3, 4, 5, 6};
  const Tensor x = random_tensor(sizes, 1);
  for (const std::vector<int64_t>& axes :
       std::vector<std::vector<int64_t>>{{0, 2, 3}, {1}, {0, 2}, {0, 1, 2, 3}, {1, 3}, {3}, {0}}) {
    for (const char* op : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"}) {
      Graph g(default_ops());
      const Value y = reduce(op, g.input("x", f32(sizes)), axes, false);
      g.output(y, "y");
      const CpuRun run = run_on_cpu(g, {{"x", x}});
      std::map<int64_t, double> want;
      for (int64_t i = 0; i < x.count(); ++i) {
        int64_t rest = i, to = 0, stride = 1;
        for (int64_t axis = 3; axis >= 0; --axis) {
          const int64_t n = sizes[static_cast<size_t>(axis)];
          if (std::find(axes.begin(), axes.end(), axis) == axes.end()) {
            to += rest % n * stride;
            stride *= n;
          }
          rest /= n;
        }
        const double v = x.as<float>()[i];
        const bool first = !want.count(to);
        double& slot = want[to];
        const std::string name = op;
        if (name == "ReduceMax")
          slot = first ? v : std::max(slot, v);
        else if (name == "ReduceMin")
          slot = first ? v : std::min(slot, v);
        else if (name == "ReduceProd")
          slot = first ? v : slot * v;
        else
          slot += v;
      }
      const double terms = static_cast<double>(x.count()) / static_cast<double>(want.size());
      for (const auto& [at, value] : want)
        ASSERT_NEAR(run[y].as<float>()[at], std::string(op) == "ReduceMean" ? value / terms : value,
                    1e-4)
            << op;
    }
  }
}

TEST(CpuReduce, LongSumsAndOrder) {
  Graph g(default_ops());
  const Value x = g.input("x", f32({100000}));
  const Value sum = reduce_sum(x, {0}, false);
  const Value small = g.input("s", f32({2, 4}));
  const Value best = g.emit1("ArgMax", {small}, {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}});
  const Value running = g.emit1("CumSum", {small, g.ints({1})});
  const std::vector<Value> in{small, g.ints({2})};
  const auto top = g.emit("TopK", in);
  for (const Value v : {sum, best, running, top[0], top[1]}) g.output(v, "out");
  Tensor st = Tensor::empty(DType::f32, {2, 4});
  const float values[] = {3, 9, 1, 9, -1, -4, -2, -3};
  std::copy(values, values + 8, st.as<float>());
  const Tensor xt = random_tensor({100000}, 1);
  double want = 0;
  for (int i = 0; i < 100000; ++i) want += xt.as<float>()[i];
  const CpuRun run = run_on_cpu(g, {{"x", xt}, {"s", st}});
  EXPECT_NEAR(run[sum].as<float>()[0], want, 1e-3);
  EXPECT_EQ(run[best].as<int64_t>()[0], 1);
  EXPECT_EQ(run[best].as<int64_t>()[1], 0);
  EXPECT_EQ(floats(run[running]), (std::vector<float>{3, 12, 13, 22, -1, -5, -7, -10}));
  EXPECT_EQ(floats(run[top[0]]), (std::vector<float>{9, 9, -1, -2}));
  EXPECT_EQ(run[top[1]].as<int64_t>()[1], 3);
}

TEST(CpuPlain, IntegersAndBools) {
  Graph g(default_ops());
  const Value a = g.input("a", Type::tensor(DType::i64, fixed({2, 3})));
  const Value b = g.input("b", Type::tensor(DType::i64, fixed({3})));
  const Value sum = a + b, ratio = a / b, less = a < b;
  const Value both = logical_and(less, logical_not(less));
  const Value chosen = where(less, a, b);
  const Value wide = cast(a, DType::f64);
  const Value root = sqrt(wide * wide);
  for (const Value v : {sum, ratio, both, chosen, root}) g.output(v, "out");
  Tensor at = Tensor::empty(DType::i64, {2, 3});
  for (int i = 0; i < 6; ++i) at.as<int64_t>()[i] = i - 2;
  const CpuRun run = run_on_cpu(g, {{"a", at}, {"b", Tensor::of({2, -1, 3})}});
  for (int i = 0; i < 6; ++i) {
    const int64_t x = i - 2, y = std::vector<int64_t>{2, -1, 3}[static_cast<size_t>(i % 3)];
    EXPECT_EQ(run[sum].as<int64_t>()[i], x + y);
    EXPECT_EQ(run[ratio].as<int64_t>()[i], x / y);
    EXPECT_FALSE(run[both].as<bool>()[i]);
    EXPECT_EQ(run[chosen].as<int64_t>()[i], x < y ? x : y);
    EXPECT_EQ(run[root].as<double>()[i], std::abs(static_cast<double>(x)));
  }
}

// As torch's scatter_reduce does: on either side a NaN is the largest, and the smallest.
TEST(CpuMovement, ScatteredExtremaKeepNaNs) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  for (const char* how : {"max", "min"}) {
    Graph g(default_ops());
    const Value x = g.input("x", f32({4})), updates = g.input("u", f32({4}));
    const Value y = g.emit1("ScatterElements", {x, g.ints({0, 1, 2, 3}), updates},
                            {{"axis", int64_t{0}}, {"reduction", std::string(how)}});
    g.output(y, "y");
    Tensor xt = Tensor::empty(DType::f32, {4}), ut = Tensor::empty(DType::f32, {4});
    const float from[] = {1, nan, 3, nan}, to[] = {nan, 2, 5, nan};
    std::copy_n(from, 4, xt.as<float>());
    std::copy_n(to, 4, ut.as<float>());
    const CpuRun run = run_on_cpu(g, {{"x", xt}, {"u", ut}});
    const float* got = run[y].as<float>();
    for (const int i : {0, 1, 3}) EXPECT_TRUE(std::isnan(got[i])) << how << i;
    EXPECT_EQ(got[2], how == std::string("max") ? 5.0f : 3.0f);
  }
}

}  // namespace
}  // namespace ort
