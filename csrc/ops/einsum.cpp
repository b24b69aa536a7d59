// Einsum: its definition is transposes, sums and one matrix product for each pair of operands.
#include <algorithm>
#include <map>

#include "csrc/ops/ops.h"

namespace ort {
namespace {

// One label a character for each axis; the axes of an ellipsis are labelled from kEllipsis on.
constexpr char kEllipsis = 1;
using Labels = std::string;

struct Equation {
  std::vector<Labels> in;
  Labels out;
};

bool holds(const Labels& labels, char label) {
  return labels.find(label) != Labels::npos;
}

bool has_ellipsis(const std::string& term) {
  return term.find("...") != std::string::npos;
}

// "...ij" whose ellipsis stands for `hidden` axes, aligned on the right with the widest one.
Labels labels_of(const std::string& term, int64_t hidden, int64_t widest) {
  if (!has_ellipsis(term)) return term;
  Labels middle;
  for (int64_t i = widest - hidden; i < widest; ++i) middle += static_cast<char>(kEllipsis + i);
  const size_t dots = term.find("...");
  return term.substr(0, dots) + middle + term.substr(dots + 3);
}

std::vector<std::string> terms_of(const std::string& side) {
  std::vector<std::string> terms{""};
  for (const char c : side)
    if (c == ',')
      terms.emplace_back();
    else
      terms.back() += c;
  return terms;
}

// Without "->": the ellipsis, then the letters that occur once, in order.
Labels implied_output(const std::vector<Labels>& in) {
  std::map<char, int> times;
  for (const Labels& labels : in)
    for (const char label : labels) ++times[label];
  Labels out;
  for (const auto& [label, count] : times)
    if (count == 1 || label < 'A') out += label;
  return out;
}

Equation parse_equation(std::string text, const std::vector<int64_t>& ranks) {
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  const size_t arrow = text.find("->");
  const auto terms = terms_of(text.substr(0, arrow));
  check(terms.size() == ranks.size(), "[Einsum] equation '{}' has {} terms, the node {} inputs",
        text, terms.size(), ranks.size());
  const auto hidden = [&](size_t i) {
    return ranks[i] - static_cast<int64_t>(terms[i].size()) + 3;
  };
  int64_t widest = 0;
  for (size_t i = 0; i < terms.size(); ++i)
    if (has_ellipsis(terms[i])) widest = std::max(widest, hidden(i));
  check(widest < 'A' - kEllipsis, "[Einsum] an ellipsis stands for {} axes", widest);
  Equation e;
  for (size_t i = 0; i < terms.size(); ++i) {
    e.in.push_back(labels_of(terms[i], hidden(i), widest));
    check(static_cast<int64_t>(e.in[i].size()) == ranks[i],
          "[Einsum] term '{}' does not fit an input of rank {}", terms[i], ranks[i]);
  }
  const bool implied = arrow == std::string::npos;
  e.out = implied ? implied_output(e.in) : labels_of(text.substr(arrow + 2), widest, widest);
  for (const char label : e.out)
    check(std::any_of(e.in.begin(), e.in.end(),
                      [&](const Labels& labels) { return holds(labels, label); }),
          "[Einsum] output label '{}' of '{}' is in no input", label, text);
  return e;
}

// Of a label that a term repeats, which takes a diagonal: sizes are equal, 1 repeats nothing.
void expect_square(InferContext& c, size_t input, const Labels& labels) {
  for (size_t d = 0; d < labels.size(); ++d) {
    const size_t first = labels.find(labels[d]);
    const Dim &one = c.dims(input)[first], &other = c.dims(input)[d];
    c.require(may_be_equal(one, other), "label '{}' has sizes {} and {} in one input of shape {}",
              labels[d], one, other, c.dims(input));
    c.assume_equal({other}, {one}, "sizes of a diagonal");
  }
}

void infer_einsum(InferContext& c) {
  std::vector<int64_t> ranks;
  for (size_t i = 0; i < c.count(); ++i) {
    if (!c.ranked(i)) return c.out(0, c.dtype(), std::nullopt);
    ranks.push_back(c.rank(i));
  }
  const Equation e = parse_equation(c.attrs().s("equation"), ranks);
  std::map<char, Dim> sizes;
  for (size_t i = 0; i < c.count(); ++i) expect_square(c, i, e.in[i]);
  for (size_t i = 0; i < c.count(); ++i)
    for (size_t d = 0; d < e.in[i].size(); ++d) {
      const auto [found, added] = sizes.try_emplace(e.in[i][d], c.dims(i)[d]);
      const Dim &one = found->second, &other = c.dims(i)[d];
      const bool fit = may_be_equal(one, other) || one.is(1) || other.is(1);
      c.require(fit, "label '{}' has sizes {} and {}", e.in[i][d], one, other);
      found->second = c.broadcast(one, other, "sizes of a label");
    }
  Dims dims;
  for (const char label : e.out) dims.push_back(sizes.at(label));
  c.out(0, c.dtype(), std::move(dims));
}

// Every combination of the labels' sizes is one product and one sum.
double einsum_cost(const Sized& node) {
  std::vector<int64_t> ranks;
  for (size_t i = 0; i < node.node().in.size(); ++i) {
    if (!node.ranked(i)) return node.y();
    ranks.push_back(node.node().input(i).rank());
  }
  const Equation e = parse_equation(node.attrs().s("equation"), ranks);
  std::map<char, double> sizes;
  for (size_t i = 0; i < e.in.size(); ++i)
    for (size_t d = 0; d < e.in[i].size(); ++d) {
      double& size = sizes[e.in[i][d]];
      size = std::max(size, node.size(i, static_cast<int64_t>(d)));
    }
  double count = 2;
  for (const auto& [label, size] : sizes) count *= size;
  return count;
}

struct Term {
  Value value;
  Labels labels;

  Dims dims(const Labels& of) const {
    Dims result;
    for (const char label : of)
      result.push_back(value.dim(static_cast<int64_t>(labels.find(label))));
    return result;
  }
};

// The diagonals over labels that the term repeats: of n rows of n with n more zeros, laid out in
// rows of n + 1, it is the first column.
Term diagonal(Term term) {
  for (size_t d = 0; d < term.labels.size();) {
    const size_t again = term.labels.find(term.labels[d], d + 1);
    if (again == Labels::npos) {
      ++d;
      continue;
    }
    std::vector<int64_t> perm{static_cast<int64_t>(d), static_cast<int64_t>(again)};
    Labels rest;
    for (size_t k = 0; k < term.labels.size(); ++k)
      if (k != d && k != again) {
        perm.push_back(static_cast<int64_t>(k));
        rest += term.labels[k];
      }
    const Value rows = transpose(term.value, perm);
    const Dim n = rows.dim(0);
    Dims flat{n * n}, shifted{n, n + 1};
    for (int64_t k = 2; k < rows.rank(); ++k) {
      flat.push_back(rows.dim(k));
      shifted.push_back(rows.dim(k));
    }
    const Value longer = pad_axis(reshape(rows, flat), 0, 0, n);
    term.value = squeeze(slice(reshape(longer, shifted), 1, 0, 1), {1});
    term.labels = Labels(1, term.labels[d]) + rest;
    d = 0;
  }
  return term;
}

// Sums the axes that nobody needs any more.
Term summed(const Term& term, const Labels& keep) {
  std::vector<int64_t> axes;
  Labels rest;
  for (size_t d = 0; d < term.labels.size(); ++d)
    if (holds(keep, term.labels[d]))
      rest += term.labels[d];
    else
      axes.push_back(static_cast<int64_t>(d));
  return {reduce_sum(term.value, axes, false), rest};
}

Value in_order(const Term& term, const Labels& order) {
  if (term.labels == order) return term.value;
  std::vector<int64_t> perm;
  for (const char label : order) perm.push_back(static_cast<int64_t>(term.labels.find(label)));
  return transpose(term.value, perm);
}

// The term with the axes of these labels as wide as in the other one: a size of 1 repeats.
Term widened(const Term& term, const Term& other, const Labels& labels) {
  Dims dims = term.value.dims();
  for (const char label : labels) {
    Dim& size = dims[term.labels.find(label)];
    size = broadcast_size(size, other.dims(Labels(1, label))[0]);
  }
  return {expand(term.value, dims), term.labels};
}

// [batch.., m, k] x [batch.., k, n]: batch is shared and kept, k is shared and summed.
Term contracted(Term a, Term b, const Labels& keep) {
  a = summed(a, keep + b.labels);
  b = summed(b, keep + a.labels);
  Labels batch, m, k, n;
  for (const char label : a.labels)
    (!holds(b.labels, label) ? m : holds(keep, label) ? batch : k) += label;
  for (const char label : b.labels)
    if (!holds(a.labels, label)) n += label;
  if (a.dims(k) != b.dims(k)) {
    const Term narrow = a;
    a = widened(a, b, k);
    b = widened(b, narrow, k);
  }
  Dims left = a.dims(batch), right = b.dims(batch), result = broadcast(left, right);
  const Dims rows = a.dims(m), columns = b.dims(n);
  left.insert(left.end(), {product(rows), product(a.dims(k))});
  right.insert(right.end(), {product(b.dims(k)), product(columns)});
  const Value y =
      matmul(reshape(in_order(a, batch + m + k), left), reshape(in_order(b, batch + k + n), right));
  result.insert(result.end(), rows.begin(), rows.end());
  result.insert(result.end(), columns.begin(), columns.end());
  return {reshape(y, result), batch + m + n};
}

Value einsum(const OpCall& c) {
  std::vector<int64_t> ranks;
  for (size_t i = 0; i < c.count(); ++i) ranks.push_back(c.x(i).rank());
  const Equation e = parse_equation(c.attrs().s("equation"), ranks);
  Term total = diagonal({c.x(0), e.in[0]});
  for (size_t i = 1; i < c.count(); ++i) {
    Labels keep = e.out;
    for (size_t later = i + 1; later < c.count(); ++later) keep += e.in[later];
    total = contracted(total, diagonal({c.x(i), e.in[i]}), keep);
  }
  const Term rest = summed(total, e.out);
  return in_order(rest, e.out);
}

}  // namespace

static void register_einsum(OpSet& ops) {
  ops.op("Einsum")
      .in_variadic("x", kNumeric)
      .out("y")
      .since(12)
      .attr_required("equation")
      .cost(einsum_cost)
      .computes_in(DType::f32)
      .shape(infer_einsum)
      .defined_as(einsum);
}

const Family<OpSet> kEinsumOps("ops", "einsum", register_einsum);

}  // namespace ort
