// Normalisations. Their gradients are written in elementary ops: one pass of row and column sums
// each, which a provider fuses.
#include <numeric>

#include "csrc/ops/ops.h"

namespace ort {
namespace {

std::vector<int64_t> axes_from(int64_t axis, int64_t rank) {
  if (axis < 0) axis += rank;
  std::vector<int64_t> axes;
  for (int64_t i = axis; i < rank; ++i) axes.push_back(i);
  return axes;
}

// Axes of everything but the batch and the channel: [N, C, D1..Dn] -> 2..n+1.
std::vector<int64_t> spatial_axes(int64_t rank) {
  return axes_from(2, rank);
}

// A per-channel vector [C] against [N, C, D1..Dn].
Value per_channel(Value vector, int64_t rank) {
  std::vector<int64_t> axes(static_cast<size_t>(rank) - 2);
  std::iota(axes.begin(), axes.end(), 1);
  return unsqueeze(vector, axes);
}

struct Moments {
  Value centred, mean, inv_std;
};

// LayerNorm's statistics over `axes`: biased variance (Ba et al. 2016, eq. 3).
Moments moments(Value x, const std::vector<int64_t>& axes, double epsilon) {
  const Value mean = reduce_mean(x, axes);
  const Value centred = x - mean;
  const Value variance = reduce_mean(centred * centred, axes);
  return {centred, mean, 1.0 / sqrt(variance + epsilon)};
}

void infer_norm(InferContext& c) {
  same_dims(c, 0, 0);
  if (!c.ranked(0)) return;
  const int64_t axis = c.axis(c.attrs().i("axis"), c.rank(0));
  Dims reduced = c.dims(0);
  for (size_t i = static_cast<size_t>(axis); i < reduced.size(); ++i) reduced[i] = 1;
  const Dims normal(c.dims(0).begin() + axis, c.dims(0).end());
  for (size_t i = 1; i < c.count(); ++i) expect_stretches(c, i, normal);
  const DType dtype = c.node().schema->compute_dtype(c.node());
  c.out(1, dtype, reduced);
  c.out(2, dtype, reduced);
}

Outputs layer_norm(const OpCall& c) {
  const Moments m =
      moments(c.x(0), axes_from(c.attrs().i("axis"), c.x(0).rank()), c.attrs().f("epsilon"));
  Value y = m.centred * m.inv_std * c.x(1);
  if (c.has(2)) y = y + c.x(2);
  return {y, m.mean, m.inv_std};
}

// The number of elements along axes of x.
Value count_along(Value x, const std::vector<int64_t>& axes) {
  Dim count = 1;
  for (const int64_t axis : axes) count = count * x.dim(axis);
  if (const auto known = count.value()) return number(static_cast<double>(*known), x);
  return cast(x.graph->size(count), x.dtype());
}

// dx = (g - mean(g) - n mean(g n)) / std with n the normalised x and g = dy scale; what comes
// through mean and inv_std besides adds (dmean - dinv n / std^2) / N.
Outputs layer_norm_gradient(const Backward& b) {
  const Value x = b.x(0), dy = b.dy(), inv_std = b.y(2);
  const auto axes = axes_from(b.attrs().i("axis"), x.rank());
  const Value normal = (x - b.y(1)) * inv_std;
  Outputs grads(3);
  if (dy) {
    const Value g = dy * b.x(1);
    grads[0] = inv_std * (g - reduce_mean(g, axes) - normal * reduce_mean(g * normal, axes));
    if (b.needs(1)) grads[1] = sum_to(dy * normal, b.x(1).dims());
    if (b.needs(2)) grads[2] = sum_to(dy, b.x(2).dims());
  }
  Value rest = b.dy(1) ? expand(b.dy(1), x.dims()) : Value{};
  if (b.dy(2)) {
    const Value through = b.dy(2) * inv_std * inv_std * normal;
    rest = rest ? rest - through : -through;
  }
  if (!rest) return grads;
  rest = rest / count_along(x, axes);
  grads[0] = grads[0] ? grads[0] + rest : rest;
  return grads;
}

Outputs rms_norm(const OpCall& c) {
  const Value x = c.x(0);
  const Value square = reduce_mean(x * x, axes_from(c.attrs().i("axis"), x.rank()));
  const Value inv_rms = 1.0 / sqrt(square + c.attrs().f("epsilon"));
  return {x * inv_rms * c.x(1)};
}

// dx = inv (g - n mean(g n)) with n = x inv (Zhang & Sennrich 2019).
Outputs rms_norm_gradient(const Backward& b) {
  const Value x = b.x(0), dy = b.dy();
  const auto axes = axes_from(b.attrs().i("axis"), x.rank());
  const Value inv = 1.0 / sqrt(reduce_mean(x * x, axes) + b.attrs().f("epsilon"));
  const Value normal = x * inv;
  const Value g = dy * b.x(1);
  Outputs grads(2);
  grads[0] = inv * (g - normal * reduce_mean(g * normal, axes));
  if (b.needs(1)) grads[1] = sum_to(dy * normal, b.x(1).dims());
  return grads;
}

Value group_norm(const OpCall& c) {
  const Value x = c.x(0);
  const Dim groups = c.attrs().i("num_groups");
  const Dims dims = x.dims();
  Dims inner(dims.begin() + 1, dims.end());
  const Dim size = floor_div(product(inner), groups);
  const Moments m = moments(reshape(x, {dims[0], groups, size}), {2}, c.attrs().f("epsilon"));
  const Value normal = reshape(m.centred * m.inv_std, dims);
  return normal * per_channel(c.x(1), x.rank()) + per_channel(c.x(2), x.rank());
}

Value instance_norm(const OpCall& c) {
  const Value x = c.x(0);
  const Moments m = moments(x, spatial_axes(x.rank()), c.attrs().f("epsilon"));
  return m.centred * m.inv_std * per_channel(c.x(1), x.rank()) + per_channel(c.x(2), x.rank());
}

// ONNX's own: running statistics take momentum on the old value and the biased variance.
Outputs batch_normalization(const OpCall& c) {
  const Value x = c.x(0);
  const int64_t rank = x.rank();
  const double epsilon = c.attrs().f("epsilon"), momentum = c.attrs().f("momentum");
  Value mean = c.x(3), variance = c.x(4);
  Outputs outputs(3);
  if (c.attrs().i("training_mode")) {
    std::vector<int64_t> axes{0};
    for (const int64_t axis : spatial_axes(rank)) axes.push_back(axis);
    mean = reduce_mean(x, axes, false);
    const Value centred = x - per_channel(mean, rank);
    variance = reduce_mean(centred * centred, axes, false);
    outputs[1] = c.x(3) * momentum + mean * (1.0 - momentum);
    outputs[2] = c.x(4) * momentum + variance * (1.0 - momentum);
  }
  const Value scale = c.x(1) / sqrt(variance + epsilon);
  outputs[0] = (x - per_channel(mean, rank)) * per_channel(scale, rank) + per_channel(c.x(2), rank);
  if (!c.attrs().i("training_mode")) outputs.resize(1);
  return outputs;
}

void infer_batch_norm(InferContext& c) {
  same_dims(c, 0, 0);
  if (c.ranked(0)) {
    c.require(c.rank(0) >= 2, "x has rank {}, expected at least 2", c.rank(0));
    for (size_t i = 1; i < c.count(); ++i) expect_dims(c, i, {c.dims(0)[1]});
  }
  // What the gradient makes numbers from is float32 of halves.
  const DType saved = c.node().schema->compute_dtype(c.node());
  for (size_t i = 1; i < c.node().out.size(); ++i)
    c.out(i, i < 3 ? c.dtype(3) : saved, c.type(1).dims);
}

Outputs batch_norm_gradient(const Backward& b) {
  const bool training = b.attrs().i("training") != 0;
  const DType wide = b.node().schema->compute_dtype(b.node());
  const Value mean = training ? b.y(3) : widen(b.x(3), wide);
  const Value inv_std =
      training ? b.y(4) : 1.0 / sqrt(widen(b.x(4), wide) + b.attrs().f("epsilon"));
  const std::vector<Value> in{b.dy(), b.x(0), b.x(1), mean, inv_std};
  Outputs grads =
      b.graph().emit("ort::BatchNormGrad", in, {{"training", static_cast<int64_t>(training)}});
  return grads;
}

void register_batch_norm(OpSet& ops) {
  ops.op("BatchNormalization")
      .in("x", kFloating)
      .in("scale", kFloating, "S")
      .in("bias", kFloating, "S")
      .in("mean", kFloating, "U")
      .in("var", kFloating, "U")
      .out("y")
      .out("running_mean", kFloating, "U")
      .out("running_var", kFloating, "U")
      .since(15)
      .attr("epsilon", 1e-5)
      .attr("momentum", 0.9)
      .attr("training_mode", int64_t{0})
      .computes_in(DType::f32)
      .shape(infer_batch_norm)
      .defined_as(batch_normalization);
  // torch's batch_norm: momentum weighs the new value, the running variance is the unbiased one.
  // Halves may have parameters and statistics of float32.
  ops.op("ort::BatchNorm")
      .in("x", kFloating)
      .in("scale", kFloating, "U")
      .in("bias", kFloating, "U")
      .in("running_mean", kFloating, "U")
      .in("running_var", kFloating, "U")
      .out("y")
      .out("new_mean", kFloating, "U")
      .out("new_var", kFloating, "U")
      .out("saved_mean", kFloating, "S")
      .out("saved_inv_std", kFloating, "S")
      .attr("epsilon", 1e-5)
      .attr("momentum", 0.1)
      .attr("training", int64_t{1})
      .computes_in(DType::f32)
      .shape(infer_batch_norm)
      .standard_as([](const OpCall& c) {
        if (c.attrs().i("training") != 0) return Value{};
        const DType dtype = c.x(1).dtype();
        const std::vector<Value> in{cast(c.x(0), dtype), c.x(1), c.x(2), c.x(3), c.x(4)};
        const Attrs attrs{{"epsilon", c.attrs().f("epsilon")}};
        return cast(c.graph().emit("BatchNormalization", in, attrs, 1)[0], c.x(0).dtype());
      })
      .differentiable_inputs({0, 1, 2})
      .gradient(batch_norm_gradient);
}

void register_batch_norm_grad(OpSet& ops) {
  ops.op("ort::BatchNormGrad")
      .in("dy", kFloating)
      .in("x", kFloating)
      .in("scale", kFloating, "U")
      .in("mean", kFloating, "S")
      .in("inv_std", kFloating, "S")
      .out("dx")
      .out("dscale", kFloating, "U")
      .out("dbias", kFloating, "U")
      .attr("training", int64_t{1})
      .computes_in(DType::f32)
      .shape([](InferContext& c) {
        same_dims(c, 0, 1);
        same_dims(c, 1, 2);
        same_dims(c, 2, 2);
        if (!c.ranked(1)) return;
        expect_dims(c, 0, c.dims(1));
        for (const size_t i : {2, 3, 4}) expect_dims(c, i, {c.dims(1).at(1)});
      });
}

// Of [N, C, D1..Dn]; 1 when the rank is not known.
Dim channels_of(InferContext& c) {
  if (!c.ranked(0)) return 1;
  c.require(c.rank(0) >= 2, "x has rank {}, expected at least 2", c.rank(0));
  return c.dims(0)[1];
}

void infer_group_norm(InferContext& c) {
  same_dims(c, 0, 0);
  const Dim channels = channels_of(c);
  if (!c.ranked(0)) return;
  const int64_t groups = c.attrs().i("num_groups");
  const auto known = channels.value();
  c.require(groups > 0 && (!known || *known % groups == 0),
            "{} channels do not divide into {} groups", channels, groups);
  c.assume(divisible(channels, groups), "channels");
  for (const size_t i : {1, 2}) expect_dims(c, i, {channels});
}

void infer_instance_norm(InferContext& c) {
  same_dims(c, 0, 0);
  const Dim channels = channels_of(c);
  for (const size_t i : {1, 2})
    if (c.ranked(0)) expect_dims(c, i, {channels});
}

// A zero row stays zero.
Value lp_normalization(const OpCall& c) {
  const int64_t p = c.attrs().i("p");
  check(p == 1 || p == 2, "[LpNormalization] p is {}, expected 1 or 2", p);
  const Value x = c.x();
  const std::vector<int64_t> axis{c.attrs().i("axis")};
  const Value size =
      p == 1 ? reduce_sum(abs(x), axis) : unary("ort::SafeSqrt", reduce_sum(x * x, axis));
  const Value none = equal(size, number(0.0, size));
  return x / where(none, number(1.0, size), size);
}

Value mean_variance_normalization(const OpCall& c) {
  const std::vector<int64_t>& axes = c.attrs().ints("axes");
  const Value x = c.x(), mean = reduce_mean(x, axes);
  const Value variance = reduce_mean(x * x, axes) - mean * mean;
  return (x - mean) / (sqrt(variance) + 1e-9);
}

// Local response: each element against `size` channels around it (Krizhevsky et al. 2012, 3.3).
Value local_response(const OpCall& c) {
  const Value x = c.x();
  const int64_t size = c.attrs().i("size");
  const Value square = pad_axis(x * x, 1, (size - 1) / 2, size / 2);
  Value total;
  for (int64_t i = 0; i < size; ++i) {
    const Value part = slice(square, 1, i, x.dim(1) + i);
    total = total ? total + part : part;
  }
  const double alpha = c.attrs().f("alpha") / static_cast<double>(size);
  return x / pow(c.attrs().f("bias") + alpha * total, c.attrs().f("beta"));
}

void register_plain(OpSet& ops) {
  ops.op("LpNormalization")
      .in("x", kFloating)
      .out("y")
      .since(1)
      .attr("axis", int64_t{-1})
      .attr("p", int64_t{2})
      .computes_in(DType::f32)
      .shape([](InferContext& c) {
        same_dims(c, 0, 0);
        if (c.ranked(0)) c.axis(c.attrs().i("axis"), c.rank(0));
      })
      .defined_as(lp_normalization);
  ops.op("MeanVarianceNormalization")
      .in("x", kFloating)
      .out("y")
      .since(13)
      .attr("axes", std::vector<int64_t>{0, 2, 3})
      .computes_in(DType::f32)
      .shape([](InferContext& c) {
        same_dims(c, 0, 0);
        for (const int64_t axis : c.attrs().ints("axes"))
          if (c.ranked(0)) c.axis(axis, c.rank(0));
      })
      .defined_as(mean_variance_normalization);
  ops.op("LRN")
      .in("x", kFloating)
      .out("y")
      .since(1)
      .attr("alpha", 1e-4)
      .attr("beta", 0.75)
      .attr("bias", 1.0)
      .attr_required("size")
      .computes_in(DType::f32)
      .shape([](InferContext& c) {
        channels_of(c);
        same_dims(c, 0, 0);
        const int64_t size = c.attrs().i("size");  // its definition has as many parts
        c.require(size >= 1 && size <= 1000, "size is {}, expected 1 to 1000", size);
      })
      .defined_as(local_response);
}

}  // namespace

static void register_norm(OpSet& ops) {
  register_plain(ops);
  ops.op("LayerNormalization")
      .in("x", kFloating)
      .in("scale", kFloating)
      .in_optional("bias", kFloating)
      .out("y")
      .out("mean")
      .out("inv_std")
      .since(17)
      .attr("axis", int64_t{-1})
      .attr("epsilon", 1e-5)
      .attr("stash_type", int64_t{1})
      .computes_in("stash_type")
      .shape(infer_norm)
      .defined_as(layer_norm)
      .wide_gradient(layer_norm_gradient);
  ops.op("RMSNormalization")
      .in("x", kFloating)
      .in("scale", kFloating)
      .out("y")
      .since(23)
      .attr("axis", int64_t{-1})
      .attr("epsilon", 1e-5)
      .attr("stash_type", int64_t{1})
      .computes_in("stash_type")
      .shape(infer_norm)
      .defined_as(rms_norm)
      .wide_gradient(rms_norm_gradient);
  ops.op("GroupNormalization")
      .in("x", kFloating)
      .in("scale", kFloating)
      .in("bias", kFloating)
      .out("y")
      .since(21)
      .attr("epsilon", 1e-5)
      .attr_required("num_groups")
      .attr("stash_type", int64_t{1})
      .computes_in("stash_type")
      .shape(infer_group_norm)
      .defined_as(group_norm);
  ops.op("InstanceNormalization")
      .in("x", kFloating)
      .in("scale", kFloating)
      .in("bias", kFloating)
      .out("y")
      .since(6)
      .attr("epsilon", 1e-5)
      .computes_in(DType::f32)
      .shape(infer_instance_norm)
      .defined_as(instance_norm);
  register_batch_norm(ops);
  register_batch_norm_grad(ops);
}

const Family<OpSet> kNormOps("ops", "norm", register_norm);

}  // namespace ort
