// Random ops. All randomness is Philox4x32-10 (Salmon et al. 2011) of a key and a counter in the
// graph, so forward, backward and recomputation see the same numbers. The key is in the frame, of
// ONNX's ops attribute seed, or else another one in each run.
#include <bit>
#include <numbers>

#include "csrc/ops/ops.h"

namespace ort {
namespace {

// --- draws --------------------------------------------------------------------------------------

bool has_seed(const Attrs& attrs) {
  return attrs.has("seed");
}

// A node that draws its own key is one of its own, whatever other nodes are like it.
Effect effect_of_draw(const Node& node) {
  return has_seed(node.attrs) ? Effect::none : Effect::random;
}

Value key_of(const OpCall& c) {
  if (!has_seed(c.attrs())) return c.graph().emit("ort::RandomKey", {}, {})[0];
  const Attr& seed = *c.attrs().find("seed");
  const auto* integer = std::get_if<int64_t>(&seed);  // of Dropout; the others have a float
  Tensor key = Tensor::empty(DType::u64, {});
  *key.as<uint64_t>() = integer ? static_cast<uint64_t>(*integer)
                                : std::bit_cast<uint32_t>(static_cast<float>(c.attrs().f("seed")));
  return c.graph().constant(std::move(key));
}

// Numbers of one call in [0, 1), of float32 or float64.
class Uniform {
 public:
  Uniform(const OpCall& c, DType dtype) : key_(key_of(c)), dtype_(dtype) {}
  Value draw(const Dims& dims) {
    const Value high = words(dims);
    if (dtype_ != DType::f64) return high;
    return cast(high, dtype_) + cast(words(dims), dtype_) * 0x1p-24;
  }

 private:
  Value words(const Dims& dims) {
    return key_.graph->emit1("ort::Uniform", {key_}, {{"counter", counter_++}, {"dims", dims}});
  }
  Value key_;
  DType dtype_;
  int64_t counter_ = 0;
};

// The dtype that attribute "dtype" names, else that of the input.
DType drawn_dtype(const OpCall& c, TypeSet allowed) {
  const int64_t asked = c.attrs().i("dtype", 0);
  const DType dtype = asked ? static_cast<DType>(asked) : c.x().dtype();
  check((!asked || known_dtype(asked)) && (allowed & bit(dtype)),
        "[random] the dtype of the result is {}, which it cannot have",
        known_dtype(asked) || !asked ? name_of(dtype) : "unknown");
  return dtype;
}

Dims drawn_dims(const OpCall& c) {
  if (c.has(0)) return c.x().dims();
  Dims dims;
  for (const int64_t size : c.attrs().ints("shape")) {
    check(size >= 0, "[random] shape has {}, expected 0 or more", size);
    dims.emplace_back(size);
  }
  return dims;
}

Value uniform(const OpCall& c) {
  const DType dtype = drawn_dtype(c, kFloating);
  const double low = c.attrs().f("low"), high = c.attrs().f("high");
  const Value u = Uniform(c, dtype).draw(drawn_dims(c));
  return cast(low + u * (high - low), dtype);
}

// Box and Muller 1958.
Value normal(const OpCall& c) {
  const DType dtype = drawn_dtype(c, kFloating);
  Uniform draws(c, dtype);
  const Dims dims = drawn_dims(c);
  const Value radius = sqrt(-2.0 * log(1.0 - draws.draw(dims)));
  const Value z = radius * cos(2.0 * std::numbers::pi * draws.draw(dims));
  return cast(c.attrs().f("mean") + c.attrs().f("scale") * z, dtype);
}

DType wide_of(DType dtype) {
  return dtype == DType::f64 ? dtype : DType::f32;
}

Value bernoulli(const OpCall& c) {
  const DType dtype = drawn_dtype(c, kFloating | kIntegers | kBool), wide = wide_of(c.x().dtype());
  return cast(Uniform(c, wide).draw(c.x().dims()) < cast(c.x(), wide), dtype);
}

// x [B, C] are logarithms; the class where the sum of what comes up to it passes a part of all.
Value multinomial(const OpCall& c) {
  const DType wide = wide_of(c.x().dtype());
  const DType dtype = drawn_dtype(c, kIndex);
  const int64_t count = c.attrs().i("sample_size");
  check(c.x().rank() == 2, "[Multinomial] input has shape {}, expected [B, C]", c.x().dims());
  check(count > 0, "[Multinomial] sample_size is {}, expected 1 or more", count);
  Graph& g = c.graph();
  const Value x = cast(c.x(), wide), p = exp(x - reduce_max(x, {1}));
  const Value up_to = g.emit1("CumSum", {p, g.scalar(1, DType::i64)});
  const Value total = slice(up_to, 1, c.x().dim(1) - 1, c.x().dim(1));
  const Value at = Uniform(c, wide).draw({c.x().dim(0), count}) * total;
  const Value passed = logical_not(unsqueeze(up_to, {1}) > unsqueeze(at, {2}));
  const Value index = reduce_sum(cast(passed, dtype), {2}, false);
  return minimum(index, cast(g.size(c.x().dim(1) - 1), dtype));
}

void add_draws(OpSet& ops) {
  for (const bool is_normal : {false, true})
    for (const bool like : {false, true}) {
      OpSchema& op =
          ops.op(format("Random{}{}", is_normal ? "Normal" : "Uniform", like ? "Like" : ""));
      if (like) op.in("input", kAny, "X");
      op.out("output", kFloating, "Y").dtype_by("dtype").since(1);
      op.attr(is_normal ? "mean" : "low", 0.0).attr(is_normal ? "scale" : "high", 1.0);
      if (like)
        op.attr_optional("dtype");
      else
        op.attr("dtype", int64_t{1}).attr_required("shape");
      op.attr_optional("seed").effect(effect_of_draw).not_differentiable();
      is_normal ? op.defined_as(normal) : op.defined_as(uniform);
    }
  ops.op("Bernoulli")
      .in("input", kFloating, "X")
      .out("output", kFloating | kIntegers | kBool, "Y")
      .dtype_by("dtype")
      .since(15)
      .attr_optional("dtype")
      .attr_optional("seed")
      .effect(effect_of_draw)
      .not_differentiable()
      .defined_as(bernoulli);
  ops.op("Multinomial")
      .in("input", kFloating, "X")
      .out("output", kIndex, "Y")
      .dtype_by("dtype")
      .since(7)
      .attr("dtype", int64_t{6})
      .attr("sample_size", int64_t{1})
      .attr_optional("seed")
      .effect(effect_of_draw)
      .not_differentiable()
      .defined_as(multinomial);
  ops.op("ort::RandomKey")
      .out("key", bit(DType::u64), "K")
      .effect(Effect::random)
      .shape([](InferContext& c) { c.out(0, DType::u64, Dims{}); })
      .not_differentiable();
  // Element i is the upper 24 bits of word i % 4 of counter (i / 4, counter), times 2^-24.
  ops.op("ort::Uniform")
      .in("key", bit(DType::u64), "K")
      .host()
      .out("y", bit(DType::f32), "Y")
      .attr_required("counter")
      .attr_required("dims")
      .cost(20)
      .shape([](InferContext& c) {
        expect_key(c, 0);
        dims_attr(0)(c);
        c.out(0, DType::f32, c.node().output().type().dims);
      })
      .not_differentiable();
}

// --- dropout ------------------------------------------------------------------------------------

std::optional<double> training_of(Value mode) {
  return mode ? scalar_of(mode) : 0.0;
}

Effect effect_of_dropout(const Node& node) {
  const bool off = training_of(node.has_input(2) ? node.input(2) : Value{}) == 0.0;
  return off ? Effect::none : effect_of_draw(node);
}

struct Dropped {
  Value y, mask;
};

Dropped dropped(const OpCall& c, std::optional<double> ratio) {
  Graph& g = c.graph();
  const Value x = c.x(), none = number(0.0, x);
  if (!ratio) {  // a run tells it
    const Value u = Uniform(c, DType::f32).draw(x.dims());
    const Value keep = logical_not(cast(c.x(1), DType::f32) > u);
    return {where(keep, x / (1.0 - cast(c.x(1), x.dtype())), none), keep};
  }
  check(*ratio >= 0.0 && *ratio < 1.0, "[Dropout] ratio is {}, expected at least 0 and below 1",
        *ratio);
  const Attrs attrs{{"ratio", *ratio}, {"counter", int64_t{0}}};
  const Value key = key_of(c);
  const auto kept_of = [&](Value of) { return g.emit1("ort::Dropout", {of, key}, attrs); };
  const Value ones = c.outputs() > 1 ? full(g, x.dims(), 1.0, DType::f32) : Value{};
  return {kept_of(x), ones ? kept_of(ones) > 0.0 : Value{}};
}

// A constant that may have been widened to x's dtype; nullopt where a run tells it.
std::optional<double> ratio_of(const OpCall& c) {
  if (!c.has(1)) return 0.5;
  Node* maker = c.x(1).producer();
  return scalar_of(maker && maker->is("Cast") ? maker->input(0) : c.x(1));
}

// Where a run tells whether it is in training, both are made and one is chosen.
Outputs dropout(const OpCall& c) {
  if (c.graph().is_pattern()) throw NotAPattern("Dropout asks whether it is training");
  const auto training = training_of(c.x(2));
  const auto ratio = ratio_of(c);
  const Value x = c.x();
  const Value all = c.outputs() > 1 ? full(c.graph(), x.dims(), 1.0, DType::boolean) : Value{};
  if (training == 0.0 || ratio == 0.0) return {unary("Identity", x), all};
  Dropped made = dropped(c, ratio);
  if (training) return {made.y, made.mask};
  return {where(c.x(2), made.y, x), all ? where(c.x(2), made.mask, all) : Value{}};
}

void add_dropout(OpSet& ops) {
  // y = keep ? x / (1 - ratio) : 0; the mask of element i is word i % 4 of counter (i / 4,
  // counter).
  ops.op("ort::Dropout")
      .in("x", kFloating)
      .in("key", bit(DType::u64), "K")
      .host()
      .out("y")
      .attr_required("ratio")
      .attr_required("counter")
      .shape([](InferContext& c) {
        const double ratio = c.attrs().f("ratio");
        c.require(ratio >= 0.0 && ratio <= 1.0, "ratio is {}, expected 0 to 1", ratio);
        expect_key(c, 1);
        same_dims(c, 0, 0);
      })
      .elementwise()
      .cost(20)
      .differentiable_inputs({0})
      .gradient([](const Backward& b) {
        return b.graph().emit1("ort::Dropout", {b.dy(), b.x(1)}, b.attrs());
      });
  ops.op("Dropout")
      .in("x", kFloating)
      .in_optional("ratio", kFloating, "R")
      .host()
      .in_optional("training_mode", kBool, "B")
      .host()
      .out("y")
      .out("mask", kBool, "B")
      .since(12)
      .attr_optional("seed")
      .effect(effect_of_dropout)
      .shape([](InferContext& c) {
        same_dims(c, 0, 0);
        c.out(1, DType::boolean, c.type(0).dims);
      })
      .differentiable_inputs({0})
      .defined_as(dropout);
}

}  // namespace

static void register_random(OpSet& ops) {
  add_dropout(ops);
  add_draws(ops);
}

const Family<OpSet> kRandomOps("ops", "random", register_random);

}  // namespace ort
