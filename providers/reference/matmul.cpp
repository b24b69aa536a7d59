// Matrix products: MatMul and the forms of it with transposes, scale and bias.
#include "providers/reference/reference.h"

namespace ort::reference {
namespace {

struct Form {
  bool trans_a = false, trans_b = false;
  double alpha = 1.0;
};

// [M, K] x [K, N] of one batch, read through strides.
struct Matrix {
  int64_t rows, columns, row_step, column_step;
};

Matrix matrix_of(const Sizes& sizes, bool transposed) {
  const int64_t rows = sizes[sizes.size() - 2], columns = sizes.back();
  if (transposed) return {columns, rows, 1, columns};
  return {rows, columns, columns, 1};
}

template <class W>
void product(const KernelCall& c, const Form& form) {
  Sizes a_sizes = c.sizes(0), b_sizes = c.sizes(1);
  c.require(!a_sizes.empty() && !b_sizes.empty(), "operands have shapes {} and {}", a_sizes,
            b_sizes);
  if (a_sizes.size() == 1) a_sizes.insert(a_sizes.begin(), 1);
  if (b_sizes.size() == 1) b_sizes.push_back(1);
  const Matrix a = matrix_of(a_sizes, form.trans_a), b = matrix_of(b_sizes, form.trans_b);
  c.require(a.columns == b.rows, "a has shape {}, b has shape {}: inner sizes {} and {} differ",
            c.sizes(0), c.sizes(1), a.columns, b.rows);
  const Sizes a_batch(a_sizes.begin(), a_sizes.end() - 2),
      b_batch(b_sizes.begin(), b_sizes.end() - 2);
  const size_t removed = (c.rank(0) > 1) + (c.rank(1) > 1);
  c.require(c.out_sizes().size() >= removed, "the plan expected shape {}", c.out_sizes());
  const Sizes batch(c.out_sizes().begin(), c.out_sizes().end() - static_cast<int64_t>(removed));
  c.expect_count(0, element_count(batch) * a.rows * b.columns);
  const std::vector<W> x = c.all<W>(0), w = c.all<W>(1);
  std::vector<W> y(static_cast<size_t>(element_count(c.out_sizes())), 0);
  W* target = y.data();
  walk(batch, {broadcast_strides(c, a_batch, batch), broadcast_strides(c, b_batch, batch)},
       [&](int64_t, const Sizes& at) {
         const W* from_a = x.data() + at[0] * a.rows * a.columns;
         const W* from_b = w.data() + at[1] * b.rows * b.columns;
         for (int64_t i = 0; i < a.rows; ++i, target += b.columns)
           for (int64_t k = 0; k < a.columns; ++k) {
             const W left = from_a[i * a.row_step + k * a.column_step];
             for (int64_t j = 0; j < b.columns; ++j)
               target[j] = add(target[j], mul(left, from_b[k * b.row_step + j * b.column_step]));
           }
       });
  if (form.alpha != 1.0)
    for (W& value : y) value = static_cast<W>(form.alpha * static_cast<double>(value));
  if (c.has(2)) {
    const In<W> bias = c.in<W>(2);
    walk(c.out_sizes(), {broadcast_strides(c, c.sizes(2), c.out_sizes())},
         [&](int64_t i, const Sizes& at) {
           W& value = y[static_cast<size_t>(i)];
           value = add(value, bias[at[0]]);
         });
  }
  c.write(0, y);
}

Verdict is_plain(const Node& node) {
  const std::string& activation = node.attrs.s("activation");
  return require(activation == "none", "activation {} runs by its definition", activation);
}

}  // namespace

static void register_matmul(KernelTable& table) {
  add(table, "MatMul", kNumbers,
      [](const KernelCall& c) { wide(c.dtype(), [&]<class W>() { product<W>(c, {}); }); });
  add(table, "ort::IntegerMatMul", bit(DType::i8) | bit(DType::u8) | bit(DType::i32),
      [](const KernelCall& c) { product<int64_t>(c, {}); });
  add(
      table, "ort::MatMul", kNumbers,
      [](const KernelCall& c) {
        const Attrs& attrs = c.attrs();
        product<double>(c, {attrs.i("trans_a") != 0, attrs.i("trans_b") != 0, attrs.f("alpha")});
      },
      is_plain);
  add(
      table, "ort::Linear", kNumbers,
      [](const KernelCall& c) { product<double>(c, {false, true, 1.0}); }, is_plain);
}

const Family<KernelTable> kMatmulKernels("reference", "matmul", register_matmul);

}  // namespace ort::reference
