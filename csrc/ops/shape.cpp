// Constants, views and movement of data: nothing here computes.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "csrc/ops/ops.h"

namespace ort {
namespace {

// Integer constants of up to this many elements are known sizes.
constexpr int64_t kMaxContents = 64;

void infer_constant(InferContext& c) {
  const Attr* attr = c.attrs().find("value");
  const Tensor* value = attr ? std::get_if<Tensor>(attr) : nullptr;
  c.require(value != nullptr, "attribute 'value' is missing or no tensor");
  Dims dims(value->sizes.begin(), value->sizes.end());
  c.out(0, value->dtype, std::move(dims));
  if ((value->dtype == DType::i64 || value->dtype == DType::i32) &&
      value->count() <= kMaxContents && value->sizes.size() <= 1) {
    Dims contents;
    for (int64_t i = 0; i < value->count(); ++i) contents.push_back(element_as_int(*value, i));
    c.out_contents(0, std::move(contents));
  }
}

void infer_sizes(InferContext& c) {
  const Dims& dims = std::get<Dims>(*c.attrs().find("dims"));
  const bool scalar = c.attrs().i("scalar") != 0;
  c.out(0, DType::i64, scalar ? Dims{} : Dims{static_cast<int64_t>(dims.size())});
  c.out_contents(0, dims);
}

void register_constants(OpSet& ops) {
  ops.op("Constant")
      .out("y")
      .attr_required("value")
      .constant()
      .shape(infer_constant)
      .not_differentiable();
  ops.op("ort::Sizes")
      .out("y", kInt64)
      .attr_required("dims")
      .attr("scalar", int64_t{0})
      .sizes()
      .shape(infer_sizes)
      .not_differentiable();
  ops.op("Shape")
      .in("x")
      .out("y", kInt64, "I")
      .since(13)
      .attr("start", int64_t{0})
      .attr_optional("end")
      .shape([](InferContext& c) {
        if (!c.ranked(0)) return c.out(0, DType::i64, Dims{c.fresh()});
        const int64_t rank = c.rank(0);
        const auto clamp = [rank](int64_t at) {
          return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
        };
        const int64_t start = clamp(c.attrs().i("start")), end = clamp(c.attrs().i("end", rank));
        const Dims dims(c.dims(0).begin() + start, c.dims(0).begin() + std::max(start, end));
        c.out(0, DType::i64, Dims{static_cast<int64_t>(dims.size())});
        c.out_contents(0, dims);
      })
      .not_differentiable();
  ops.op("Size")
      .in("x")
      .out("y", kInt64, "I")
      .since(13)
      .shape([](InferContext& c) {
        c.out(0, DType::i64, Dims{});
        if (c.ranked(0)) c.out_contents(0, {product(c.dims(0))});
      })
      .not_differentiable();
}

// An operand that is a list: one axis.
void expect_list(InferContext& c, size_t input) {
  c.require(!c.has(input) || !c.ranked(input) || c.rank(input) == 1,
            "{} has shape {}, expected one axis", c.node().schema->inputs()[input].name,
            c.has(input) && c.ranked(input) ? c.dims(input) : Dims{});
}

// Sizes that a shape operand asks for: none is negative.
Dims sizes_of(InferContext& c, const Dims& asked) {
  for (const Dim& dim : asked) {
    c.require(dim.value().value_or(0) >= 0, "shape {} has a negative size", asked);
    c.assume(at_least(dim, 0), "size");
  }
  return asked;
}

// How many numbers constants of a floating dtype ask for; nullopt where one is known at run time.
std::optional<int64_t> counted(Value start, Value limit, Value delta) {
  const auto from = scalar_of(start), to = scalar_of(limit), by = scalar_of(delta);
  if (!from || !to || !by || !is_floating(start.dtype())) return std::nullopt;
  const double steps = std::ceil((*to - *from) / *by);
  return steps >= 1 && steps < 0x1p62 ? static_cast<int64_t>(steps) : 0;
}

// No size says how many: a plan cannot hold it.
bool counts_at_run_time(const Node& node) {
  return is_floating(node.input(0).dtype()) &&
         !counted(node.input(0), node.input(1), node.input(2));
}

void infer_range(InferContext& c) {
  for (size_t i = 0; i < 3; ++i) c.assume_scalar(i, "elements of a bound");
  if (const auto count = counted(c.in(0), c.in(1), c.in(2))) {
    c.require(scalar_of(c.in(2)) != 0.0, "delta is 0");
    c.out(0, c.dtype(), Dims{*count});
    return;
  }
  const auto start = c.contents(0), limit = c.contents(1), delta = c.contents(2);
  const bool known = start && limit && delta && is_integer(c.dtype()) && start->size() == 1 &&
                     limit->size() == 1 && delta->size() == 1;
  if (!known) return c.out(0, c.dtype(), Dims{c.fresh()});
  const Dim& step = (*delta)[0];
  c.require(!step.is(0), "delta is 0");
  c.assume(differ(step, 0), "delta");
  // ceil((limit - start) / delta), and no less than none
  c.out(0, c.dtype(), Dims{max(Dim(0) - floor_div((*start)[0] - (*limit)[0], step), 0)});
}

void register_filled(OpSet& ops) {
  ops.op("ConstantOfShape")
      .in("shape", kInt64, "I")
      .host()
      .out("y", kAny, "Y")
      .since(9)
      .attr_optional("value")
      .shape([](InferContext& c) {
        const Attr* value = c.attrs().find("value");
        const Tensor* one = value ? &std::get<Tensor>(*value) : nullptr;
        c.require(!one || one->count() == 1, "attribute 'value' has {} elements, expected 1",
                  one ? one->count() : 0);
        const DType dtype = one ? one->dtype : DType::f32;
        expect_list(c, 0);
        const auto dims = c.contents(0);
        if (dims) return c.out(0, dtype, sizes_of(c, *dims));
        if (!c.ranked(0) || !c.dims(0)[0].value()) return c.out(0, dtype, std::nullopt);
        c.require(*c.dims(0)[0].value() <= kMaxContents, "the result has {} axes", c.dims(0)[0]);
        Dims fresh;
        for (int64_t i = 0; i < *c.dims(0)[0].value(); ++i) fresh.push_back(c.fresh());
        c.out(0, dtype, std::move(fresh));
      })
      .not_differentiable();
  ops.op("Range")
      .in("start", kNumeric)
      .host()
      .in("limit", kNumeric)
      .host()
      .in("delta", kNumeric)
      .host()
      .out("y")
      .since(11)
      .attr("stash_type", int64_t{1})
      .allocates(counts_at_run_time)
      .shape(infer_range)
      .not_differentiable();
}

// Dims of a Reshape whose operand is known: 0 copies, -1 takes the rest.
Dims reshaped(InferContext& c, const Dims& asked) {
  Dims dims = asked;
  int64_t open = -1;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i].is(-1)) {
      c.require(open < 0, "shape {} has more than one -1", asked);
      open = static_cast<int64_t>(i);
    } else if (dims[i].is(0) && !c.attrs().i("allowzero")) {
      c.require(!c.ranked(0) || i < c.dims(0).size(),
                "shape {} copies axis {}, which the input has not", asked, i);
      dims[i] = c.ranked(0) ? c.dims(0)[i] : c.fresh();
    }
    c.require(!dims[i].value() || *dims[i].value() >= -1, "shape {} has a negative size", asked);
    if (!dims[i].is(-1)) c.assume(at_least(dims[i], 0), "size");
  }
  if (open >= 0) {
    dims[static_cast<size_t>(open)] = 1;
    if (!c.ranked(0)) {
      dims[static_cast<size_t>(open)] = c.fresh();
      return dims;
    }
    const Dim all = product(c.dims(0)), rest = product(dims);
    const auto known_all = all.value(), known_rest = rest.value();
    c.require(!known_all || !known_rest || (*known_rest != 0 && *known_all % *known_rest == 0),
              "shape {} does not divide the {} elements of {}", asked, all, c.dims(0));
    c.require(!known_rest || *known_rest != 0, "shape {} leaves -1 open", asked);
    const auto exact = divide_exactly(all, rest);
    if (!exact) c.assume(divisible(all, rest), "elements");
    dims[static_cast<size_t>(open)] = exact ? *exact : floor_div(all, rest);
  }
  return dims;
}

void infer_reshape(InferContext& c) {
  expect_list(c, 1);
  const auto asked = c.contents(1);
  if (!asked) {
    if (!c.ranked(1) || !c.dims(1)[0].value() || *c.dims(1)[0].value() > kMaxContents)
      return c.out(0, c.dtype(), std::nullopt);
    Dims fresh;
    for (int64_t i = 0; i < *c.dims(1)[0].value(); ++i) fresh.push_back(c.fresh());
    return c.out(0, c.dtype(), std::move(fresh));
  }
  const Dims dims = reshaped(c, *asked);
  if (c.ranked(0)) {
    const auto before = product(c.dims(0)).value(), after = product(dims).value();
    c.require(!before || !after || *before == *after,
              "shape {} has {} elements, the input {} has {}", *asked, product(dims), c.dims(0),
              product(c.dims(0)));
    // With -1 the rest is made to fit.
    const bool open = std::find(asked->begin(), asked->end(), Dim(-1)) != asked->end();
    if (!open) c.assume(equal_sizes(product(c.dims(0)), product(dims)), "elements");
  }
  c.out(0, c.dtype(), dims);
  if (const auto known = c.contents(0)) c.out_contents(0, *known);
}

// Axes from an input (opset 13) as sorted non-negative numbers.
std::optional<std::vector<int64_t>> input_axes(InferContext& c, size_t input, int64_t rank) {
  auto axes = c.ints(input);
  if (!axes) return std::nullopt;
  for (int64_t& axis : *axes) axis = c.axis(axis, rank);
  std::sort(axes->begin(), axes->end());
  const bool twice = std::adjacent_find(axes->begin(), axes->end()) != axes->end();
  c.require(!twice, "axes {} name an axis twice", *axes);
  return axes;
}

void infer_squeeze(InferContext& c) {
  if (!c.ranked(0)) return c.out(0, c.dtype(), std::nullopt);
  Dims dims;
  std::optional<std::vector<int64_t>> axes;
  if (c.has(1)) {
    axes = input_axes(c, 1, c.rank(0));
    if (!axes) return c.out(0, c.dtype(), std::nullopt);
    if (axes->empty()) axes.reset();  // as if none were given
  }
  for (int64_t i = 0; i < c.rank(0); ++i) {
    const Dim& dim = c.dims(0)[static_cast<size_t>(i)];
    const bool named = axes && std::binary_search(axes->begin(), axes->end(), i);
    c.require(!named || !dim.value() || dim.is(1), "axis {} of {} has size {}, expected 1", i,
              c.dims(0), dim);
    if (named) c.assume(equal_sizes(dim, 1), "size of a squeezed axis");
    if (!axes && !dim.is(1)) c.assume(differ(dim, 1), "size of an axis that stays");
    if (!(axes ? named : dim.is(1))) dims.push_back(dim);
  }
  c.out(0, c.dtype(), std::move(dims));
  if (const auto known = c.contents(0)) c.out_contents(0, *known);
}

void infer_unsqueeze(InferContext& c) {
  const auto count = c.ints(1);
  if (!c.ranked(0) || !count) return c.out(0, c.dtype(), std::nullopt);
  const int64_t rank = c.rank(0) + static_cast<int64_t>(count->size());
  const auto axes = input_axes(c, 1, rank);
  Dims dims;
  size_t next = 0;
  for (int64_t i = 0; i < rank; ++i)
    dims.push_back(std::binary_search(axes->begin(), axes->end(), i) ? Dim(1) : c.dims(0)[next++]);
  c.out(0, c.dtype(), std::move(dims));
  if (const auto known = c.contents(0)) c.out_contents(0, *known);
}

// A size of symbols that comes to 0 is a size; only a 0 that was written says "copy".
bool copies_an_axis(const Node& node) {
  const auto& asked = node.graph->contents(node.in[1]);
  return !asked ||
         std::any_of(asked->begin(), asked->end(), [](const Dim& dim) { return dim.is(0); });
}

Value back_to_input(const Backward& b) {
  return reshape(b.dy(), b.x().dims());
}

void register_views(OpSet& ops) {
  ops.op("Reshape")
      .in("x")
      .in("shape", kInt64, "I")
      .host()
      .out("y")
      .since(5)
      .attr("allowzero", int64_t{0})
      .view()
      .on_numbers([](const Node& node, Attrs& attrs) {
        if (!copies_an_axis(node)) attrs.set("allowzero", int64_t{1});
      })
      .shape(infer_reshape)
      .differentiable_inputs({0})
      .gradient(back_to_input);
  ops.op("Squeeze")
      .in("x")
      .in_optional("axes", kInt64, "I")
      .host()
      .out("y")
      .since(13)
      .view()
      .shape(infer_squeeze)
      .differentiable_inputs({0})
      .gradient(back_to_input);
  ops.op("Unsqueeze")
      .in("x")
      .in("axes", kInt64, "I")
      .host()
      .out("y")
      .since(13)
      .view()
      .shape(infer_unsqueeze)
      .differentiable_inputs({0})
      .gradient(back_to_input);
}

void register_whole_views(OpSet& ops) {
  ops.op("Flatten")
      .in("x")
      .out("y")
      .since(9)
      .attr("axis", int64_t{1})
      .view()
      .shape([](InferContext& c) {
        if (!c.ranked(0)) return c.out(0, c.dtype(), std::nullopt);
        const int64_t asked = c.attrs().i("axis"), rank = c.rank(0);
        const int64_t axis = asked < 0 ? asked + rank : asked;
        c.require(axis >= 0 && axis <= rank, "axis {} does not exist, the input has rank {}", asked,
                  rank);
        const Dims& dims = c.dims(0);
        c.out(0, c.dtype(),
              Dims{product(Dims(dims.begin(), dims.begin() + axis)),
                   product(Dims(dims.begin() + axis, dims.end()))});
      })
      .gradient(back_to_input);
  ops.op("ort::StopGradient")
      .in("x")
      .out("y")
      .view()
      .shape(like(0))
      .standard_as([](const OpCall& c) { return c.x(); })
      .not_differentiable();
}

std::vector<int64_t> permutation(InferContext& c) {
  std::vector<int64_t> perm;
  if (c.attrs().has("perm")) {
    perm = c.attrs().ints("perm");
  } else {
    for (int64_t i = c.rank(0); i-- > 0;) perm.push_back(i);
  }
  std::vector<int64_t> sorted = perm, expected(static_cast<size_t>(c.rank(0)));
  std::sort(sorted.begin(), sorted.end());
  std::iota(expected.begin(), expected.end(), 0);
  c.require(sorted == expected, "perm {} is no permutation of the {} axes", perm, c.rank(0));
  return perm;
}

Value transpose_gradient(const Backward& b) {
  std::vector<int64_t> inverse(static_cast<size_t>(b.x().rank()));
  if (!b.attrs().has("perm")) return b.graph().emit1("Transpose", {b.dy()});
  const auto& perm = b.attrs().ints("perm");
  for (size_t i = 0; i < perm.size(); ++i)
    inverse[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  return transpose(b.dy(), inverse);
}

void infer_expand(InferContext& c) {
  expect_list(c, 1);
  const auto asked = c.contents(1);
  if (!c.ranked(0)) return c.out(0, c.dtype(), std::nullopt);
  if (asked) return c.out(0, c.dtype(), c.broadcast(c.dims(0), sizes_of(c, *asked), "shapes"));
  const auto count = c.ranked(1) ? c.dims(1)[0].value() : std::nullopt;
  if (count.value_or(kMaxContents + 1) > kMaxContents) return c.out(0, c.dtype(), std::nullopt);
  // Only the rank is known, and sizes that are stretched from no other.
  Dims dims;
  const int64_t rank = std::max(*count, c.rank(0));
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t at = i - (rank - c.rank(0));
    const std::optional<int64_t> size = at < 0 ? 1 : c.dims(0)[static_cast<size_t>(at)].value();
    const bool kept = size.value_or(1) != 1 || i < rank - *count;
    dims.push_back(kept ? c.dims(0)[static_cast<size_t>(at)] : c.fresh());
  }
  c.out(0, c.dtype(), std::move(dims));
}

void infer_concat(InferContext& c) {
  Dims dims, contents;
  bool known = true;
  int64_t axis = 0;
  for (size_t i = 0; i < c.count(); ++i) {
    if (!c.ranked(i)) return c.out(0, c.dtype(), std::nullopt);
    const auto part = c.contents(i);
    known = known && part && contents.size() <= static_cast<size_t>(kMaxContents);
    if (known) contents.insert(contents.end(), part->begin(), part->end());
    if (i == 0) {
      dims = c.dims(0);
      axis = c.axis(c.attrs().i("axis"), c.rank(0));
      continue;
    }
    c.require(c.rank(i) == c.rank(0), "inputs have shapes {} and {}, expected one rank", c.dims(0),
              c.dims(i));
    for (int64_t d = 0; d < c.rank(0); ++d) {
      const Dim &mine = c.dims(i)[static_cast<size_t>(d)],
                &first = c.dims(0)[static_cast<size_t>(d)];
      const bool differ = d != axis && mine.value() && first.value() && !(mine == first);
      c.require(!differ, "inputs have shapes {} and {}, which differ in axis {}", c.dims(0),
                c.dims(i), d);
      if (d != axis) c.assume(equal_sizes(mine, first), "sizes of parts");
      if (d == axis) dims[static_cast<size_t>(d)] = dims[static_cast<size_t>(d)] + mine;
    }
  }
  c.out(0, c.dtype(), std::move(dims));
  if (known && c.rank(0) == 1 && contents.size() <= static_cast<size_t>(kMaxContents))
    c.out_contents(0, std::move(contents));
}

Outputs concat_gradient(const Backward& b) {
  const int64_t axis = b.attrs().i("axis");
  Outputs grads;
  Dim start = 0;
  for (size_t i = 0; i < b.node().in.size(); ++i) {
    const Dim end = start + b.x(i).dim(axis);
    grads.push_back(b.needs(i) ? slice(b.dy(), axis, start, end) : Value{});
    start = end;
  }
  return grads;
}

void infer_split(InferContext& c) {
  const size_t count = c.node().out.size();
  c.require(count > 0, "it has no output");
  const auto asked = c.attrs().i("num_outputs", static_cast<int64_t>(count));
  c.require(asked == static_cast<int64_t>(count), "num_outputs is {}, the node has {} outputs",
            asked, count);
  expect_list(c, 1);
  if (!c.ranked(0)) {
    for (size_t i = 0; i < count; ++i) c.out(i, c.dtype(), std::nullopt);
    return;
  }
  const int64_t axis = c.axis(c.attrs().i("axis"), c.rank(0));
  const Dim whole = c.dims(0)[static_cast<size_t>(axis)];
  const auto sizes = c.contents(1);
  c.require(!sizes || sizes->size() == count, "split {} has {} sizes, the node has {} outputs",
            sizes.value_or(Dims{}), sizes ? sizes->size() : 0, count);
  Dim sum = 0;
  for (size_t i = 0; sizes && i < count; ++i) {
    c.require((*sizes)[i].value().value_or(0) >= 0, "split {} has a negative size", *sizes);
    c.assume(at_least((*sizes)[i], 0), "size");
    sum = sum + (*sizes)[i];
  }
  if (sizes) {
    const bool fits = may_be_equal(sum, whole);
    c.require(fits, "split {} has {} elements, axis {} of {} has {}", *sizes, sum, axis, c.dims(0),
              whole);
    c.assume(equal_sizes(sum, whole), "elements of all parts");
  }
  const Dim chunk = floor_div(whole + static_cast<int64_t>(count) - 1, static_cast<int64_t>(count));
  for (size_t i = 0; i < count; ++i) {
    Dims dims = c.dims(0);
    const Dim start = chunk * static_cast<int64_t>(i);
    Dim& size = dims[static_cast<size_t>(axis)];
    size = sizes ? (*sizes)[i] : c.has(1) ? c.fresh() : i + 1 == count ? whole - start : chunk;
    if (!sizes && !c.has(1) && whole.value())  // the last parts may be smaller, or have nothing
      size = max(0, min(chunk, whole - start));
    c.out(i, c.dtype(), std::move(dims));
  }
}

Value split_gradient(const Backward& b) {
  std::vector<Value> parts;
  for (size_t i = 0; i < b.node().out.size(); ++i)
    parts.push_back(b.dy(i) ? b.dy(i) : zeros_like(b.y(i)));
  return concat(parts, b.attrs().i("axis"));
}

void register_movement(OpSet& ops) {
  ops.op("Transpose")
      .in("x")
      .out("y")
      .since(1)
      .attr_optional("perm")
      .permutation()
      .shape([](InferContext& c) {
        if (!c.ranked(0)) return c.out(0, c.dtype(), std::nullopt);
        Dims dims;
        for (const int64_t axis : permutation(c))
          dims.push_back(c.dims(0)[static_cast<size_t>(axis)]);
        c.out(0, c.dtype(), std::move(dims));
      })
      .gradient(transpose_gradient);
  ops.op("Expand")
      .in("x")
      .in("shape", kInt64, "I")
      .host()
      .out("y")
      .since(8)
      .shape(infer_expand)
      .differentiable_inputs({0})
      .gradient([](const Backward& b) { return sum_to(b.dy(), b.x().dims()); });
}

void register_joining(OpSet& ops) {
  ops.op("Concat")
      .in_variadic("x")
      .out("y")
      .since(13)
      .attr_required("axis")
      .shape(infer_concat)
      .gradient(concat_gradient);
  ops.op("Split")
      .in("x")
      .in_optional("split", kInt64, "I")
      .host()
      .out_variadic("y")
      .since(13)
      .attr("axis", int64_t{0})
      .attr_optional("num_outputs")
      .shape(infer_split)
      .differentiable_inputs({0})
      .gradient(split_gradient);
  ops.op("Tile")
      .in("x")
      .in("repeats", kInt64, "I")
      .host()
      .out("y")
      .since(6)
      .shape([](InferContext& c) {
        const auto repeats = c.contents(1);
        if (!c.ranked(0) || !repeats) return c.out(0, c.dtype(), std::nullopt);
        c.require(repeats->size() == c.dims(0).size(),
                  "repeats {} has {} sizes, the input has rank {}", *repeats, repeats->size(),
                  c.rank(0));
        Dims dims = c.dims(0);
        const Dims times = sizes_of(c, *repeats);
        for (size_t i = 0; i < dims.size(); ++i) dims[i] = dims[i] * times[i];
        c.out(0, c.dtype(), std::move(dims));
      })
      .differentiable_inputs({0})
      .gradient([](const Backward& b) {
        const Dims repeats = *b.graph().contents(b.x(1).id), dims = b.x(0).dims();
        Dims split;
        std::vector<int64_t> axes;
        for (size_t i = 0; i < dims.size(); ++i) {
          axes.push_back(static_cast<int64_t>(split.size()));
          split.push_back(repeats[i]);
          split.push_back(dims[i]);
        }
        return reduce_sum(reshape(b.dy(), split), axes, false);
      });
}

}  // namespace

static void register_shape(OpSet& ops) {
  register_constants(ops);
  register_filled(ops);
  register_views(ops);
  register_whole_views(ops);
  register_movement(ops);
  register_joining(ops);
}

const Family<OpSet> kShapeOps("ops", "shape", register_shape);

}  // namespace ort
