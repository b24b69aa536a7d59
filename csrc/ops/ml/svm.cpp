// Support vector machines: a kernel matrix of rows and support vectors, and products with it. Large
// terms cancel each other there, so they are in float64.
#include <algorithm>
#include <numeric>

#include "csrc/ops/ml/scores.h"
#include "csrc/ops/ops.h"

namespace ort::ml {
namespace {

// gamma, coef0 and degree of the kernels that have them.
std::vector<double> parameters(const Attrs& attrs) {
  const auto& given = floats(attrs, "kernel_params");
  check(given.size() == 3, "it has {} kernel_params, expected gamma, coef0 and degree",
        given.size());
  return given;
}

// The kernel of each row and each vector [V, F]: [N, V].
Value kernels(Value rows, Value vectors, const Attrs& attrs) {
  const std::string& type = attrs.s("kernel_type");
  if (type == "LINEAR") return matmul(rows, transpose(vectors, {1, 0}));
  check(type == "POLY" || type == "RBF" || type == "SIGMOID",
        "kernel_type is '{}', expected LINEAR, POLY, RBF or SIGMOID", type);
  const std::vector<double> p = parameters(attrs);
  if (type == "RBF") {
    const Value difference = unsqueeze(rows, {1}) - unsqueeze(vectors, {0});
    return exp(reduce_sum(difference * difference, {2}, false) * -p[0]);
  }
  const Value product = matmul(rows, transpose(vectors, {1, 0})) * p[0] + p[1];
  return type == "POLY" ? pow(product, p[2]) : tanh(product);
}

// A list as a matrix of that many rows.
Value matrix(Value rows, const Attrs& attrs, const char* name, int64_t count) {
  const auto& values = floats(attrs, name);
  const auto size = static_cast<int64_t>(values.size());
  check(count > 0 && size > 0 && size % count == 0, "it has {} {}, expected as many for each of {}",
        size, name, count);
  return rows.graph->constant(tensor_of(values, {count, size / count}, rows.dtype()));
}

void expect_features(Value rows, Value vectors, const char* name) {
  check(may_be_equal(rows.dim(1), vectors.dim(1)), "its {} have {} features, X has {}", name,
        vectors.dim(1), rows.dim(1));
}

// --- classifiers ---

// Pairs of classes i < j, and for each class c and each other one o (those before c and those
// behind it, C - 1 in all) which pair that is.
struct Pairs {
  std::vector<int64_t> first, second;  // of each pair, where (i, j) and (j, i) lie among c and o
  std::vector<int64_t> of;             // the pair of c and o
  std::vector<double> signs;           // 1 where c is its first class, else -1
  explicit Pairs(int64_t classes) : of(static_cast<size_t>(classes * (classes - 1))) {
    signs.assign(of.size(), 1.0);
    for (int64_t i = 0; i < classes; ++i)
      for (int64_t j = i + 1; j < classes; ++j) {
        const int64_t at = i * (classes - 1) + j - 1, behind = j * (classes - 1) + i;
        of[static_cast<size_t>(at)] = of[static_cast<size_t>(behind)] = count();
        signs[static_cast<size_t>(behind)] = -1;
        first.push_back(at);
        second.push_back(behind);
      }
  }
  int64_t count() const { return static_cast<int64_t>(first.size()); }
};

// Columns of x [N, ..], by number.
Value columns(Value x, const std::vector<int64_t>& numbers) {
  return x.graph->emit1("Gather", {x, x.graph->ints(numbers)}, {{"axis", int64_t{1}}});
}

// What the vectors of each class c add to its pair with each other class o [N, C (C - 1)]: products
// of their kernels with the coefficients [C - 1, V], whose row o - 1 is of the classes behind c.
Value parts_of(Value kernels, Value coefficients, const std::vector<int64_t>& per_class) {
  std::vector<Value> parts;
  int64_t from = 0;
  for (const int64_t count : per_class) {
    const Value own = slice(coefficients, 1, from, from + count);
    parts.push_back(matmul(slice(kernels, 1, from, from + count), transpose(own, {1, 0})));
    from += count;
  }
  return concat(parts, 1);
}

// How many pairs each class wins [N, C]: those with a score above zero are their first class's.
Value votes_of(Value scores, const Pairs& pairs, int64_t classes) {
  const Value wins = cast(scores > 0.0, scores.dtype()) - 0.5;
  const auto count = static_cast<int64_t>(pairs.signs.size());
  const Value signs = scores.graph->constant(tensor_of(pairs.signs, {count}, scores.dtype()));
  const Value own = columns(wins, pairs.of) * signs;
  return reduce_sum(reshape(own, {scores.dim(0), classes, classes - 1}), {2}, false);
}

int64_t total_of(const std::vector<int64_t>& per_class) {
  int64_t total = 0;
  for (const int64_t count : per_class) {
    check(count > 0 && count < INT32_MAX, "vectors_per_class has {}", count);
    total += count;
  }
  return total;
}

Value list_of(Value like, const Attrs& attrs, const char* name, int64_t count) {
  const auto& values = floats(attrs, name);
  check(static_cast<int64_t>(values.size()) == count, "it has {} {}, expected {}", values.size(),
        name, count);
  return like.graph->constant(tensor_of(values, {count}, like.dtype()));
}

// Each pair of classes has a score; the label is of the class with the most votes. Scores are those
// of the pairs, or where prob_a and prob_b are there the probabilities of the classes.
Outputs classify_by_pairs(const OpCall& c, Value rows, const Tensor& labels) {
  const Attrs& attrs = c.attrs();
  const auto& per_class = integers(attrs, "vectors_per_class");
  const int64_t classes = labels.count();
  check(static_cast<int64_t>(per_class.size()) == classes,
        "it has {} vectors_per_class, expected {}", per_class.size(), classes);
  const int64_t total = total_of(per_class);
  const Value vectors = matrix(rows, attrs, "support_vectors", total);
  expect_features(rows, vectors, "support_vectors");
  const Value coefficients = matrix(rows, attrs, "coefficients", classes - 1);
  check(coefficients.dim(1).is(total), "it has {} coefficients for each class, expected {}",
        coefficients.dim(1), total);
  const Pairs pairs(classes);
  Graph& graph = c.graph();
  const Value parts = parts_of(kernels(rows, vectors, attrs), coefficients, per_class);
  const Value scores = columns(parts, pairs.first) + columns(parts, pairs.second) +
                       list_of(rows, attrs, "rho", pairs.count());
  const Value votes = votes_of(scores, pairs, classes);
  const Value label = chosen(votes, labels);
  const std::string& transform = attrs.s("post_transform");
  if (!floats(attrs, "prob_a").empty() || !floats(attrs, "prob_b").empty()) {
    const Value a = list_of(rows, attrs, "prob_a", pairs.count());
    const Value b = list_of(rows, attrs, "prob_b", pairs.count());
    const Value sure = sigmoid(-(scores * a + b));
    const Value joint =
        graph.emit1("ort::PairwiseProbabilities",
                    {minimum(maximum(sure, number(1e-7, sure)), number(1.0 - 1e-7, sure))},
                    {{"classes", classes}});
    return {label, transformed(cast(joint, DType::f32), transform)};
  }
  const Value single = cast(scores, DType::f32);
  return {label,
          classes == 2 ? both_classes(single, false, transform) : transformed(single, transform)};
}

Outputs classify_by_vectors(const OpCall& c) {
  const Attrs& attrs = c.attrs();
  const Tensor labels = labels_of(attrs, "classlabels_ints", "classlabels_strings");
  check(labels.count() > 1, "it has {} class label, expected at least two", labels.count());
  check(labels.count() <= 4096, "it has {} classes, expected up to 4096", labels.count());
  const Value rows = rows_of(c.x());
  if (!integers(attrs, "vectors_per_class").empty())
    return classify_by_pairs(c, cast(rows, DType::f64), labels);
  const Value weights = matrix(rows, attrs, "coefficients", labels.count());
  expect_features(rows, weights, "coefficients");
  check(!floats(attrs, "rho").empty(), "it has no rho");
  const Value scores =
      cast(matmul(rows, transpose(weights, {1, 0})) + floats(attrs, "rho")[0], DType::f32);
  return {chosen(scores, labels), transformed(scores, attrs.s("post_transform"))};
}

// Without vectors the coefficients are those of the features; of one class the sign is the result.
Value regress_by_vectors(const OpCall& c) {
  const Attrs& attrs = c.attrs();
  Value rows = rows_of(c.x());
  const int64_t supports = attrs.i("n_supports");
  const auto& coefficients = floats(attrs, "coefficients");
  const auto& rho = floats(attrs, "rho");
  check(supports >= 0, "n_supports is {}", supports);
  check(rho.size() == 1, "it has {} rho, expected one", rho.size());
  Value x = rows;
  if (supports > 0) {
    rows = cast(rows, DType::f64);
    const Value vectors = matrix(rows, attrs, "support_vectors", supports);
    expect_features(rows, vectors, "support_vectors");
    x = kernels(rows, vectors, attrs);
  }
  check(may_be_equal(x.dim(1), static_cast<int64_t>(coefficients.size())),
        "it has {} coefficients, expected {}", coefficients.size(), x.dim(1));
  const auto count = static_cast<int64_t>(coefficients.size());
  const Value y =
      matmul(x, x.graph->constant(tensor_of(coefficients, {count, 1}, x.dtype()))) + rho[0];
  if (attrs.i("one_class") != 0)
    return cast(where(y > 0.0, number(1.0, y), number(-1.0, y)), DType::f32);
  return transformed_targets(cast(y, DType::f32), attrs.s("post_transform"));
}

void register_machines(OpSet& ops) {
  OpSchema& classifier = ops.op("ai.onnx.ml::SVMClassifier")
                             .in("X", kInputs)
                             .out("Y", kLabels, "T2")
                             .dtype_by("classlabels_strings")
                             .out("Z", bit(DType::f32), "Z")
                             .defined_as(classify_by_vectors);
  for (const char* name :
       {"classlabels_ints", "classlabels_strings", "prob_a", "prob_b", "vectors_per_class"})
    classifier.attr_optional(name);
  OpSchema& regressor = ops.op("ai.onnx.ml::SVMRegressor")
                            .in("X", kInputs)
                            .out("Y", bit(DType::f32), "Y")
                            .attr("n_supports", int64_t{0})
                            .attr("one_class", int64_t{0})
                            .defined_as(regress_by_vectors);
  for (OpSchema* machine : {&classifier, &regressor}) {
    for (const char* name : {"coefficients", "kernel_params", "rho", "support_vectors"})
      machine->attr_optional(name);
    machine->attr("kernel_type", std::string("LINEAR")).attr("post_transform", std::string("NONE"));
  }
}

}  // namespace

static void register_svm(OpSet& ops) {
  register_machines(ops);
  // Probabilities of C classes from those of each pair i < j that it is i: [N, C (C - 1) / 2] to
  // [N, C], by Wu, Lin and Weng 2004, their second method.
  ops.op("ort::PairwiseProbabilities")
      .in("X", kFloating)
      .out("Y")
      .computes_in(DType::f32)
      .attr_required("classes")
      .not_differentiable()
      .shape([](InferContext& c) {
        const int64_t classes = c.attrs().i("classes");
        c.require(classes > 1 && classes <= 4096, "classes is {}, expected 2 to 4096", classes);
        if (!c.ranked(0)) return c.out(0, c.dtype(), std::nullopt);
        const Dim pairs = classes * (classes - 1) / 2;
        c.require(c.rank() == 2 && may_be_equal(c.dims()[1], pairs),
                  "X has shape {}, expected [N, {}]", c.dims(), pairs);
        c.assume_equal({c.dims()[1]}, {pairs}, "pairs of classes");
        c.out(0, c.dtype(), Dims{c.dims()[0], classes});
      });
}

const Family<OpSet> kSvmOps("ops", "ml/svm", register_svm);

}  // namespace ort::ml
