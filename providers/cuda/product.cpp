// Matrix products by cuBLASLt: MatMul, Gemm, ort::MatMul and ort::Linear. What is row-major here is
// column-major and transposed there: y' = b' a'. What cuBLASLt does not do to y, a tile program
// does.
#include "providers/product.h"

#include "providers/cuda/provider.h"
#include "providers/cuda/tile/tile.h"
#include "providers/lender.h"
#include "providers/tile/builder.h"

namespace ort::cuda {
namespace {

constexpr size_t kWorkspace = size_t{32} << 20;
constexpr size_t kAlign = 256;  // of workspaces

int real(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return kReal32;
    case DType::f64:
      return kReal64;
    case DType::f16:
      return kReal16;
    case DType::bf16:
      return kRealB16;
    default:
      fail("cuda: cuBLASLt has no products of {}", dtype);
  }
}

// Handles of cuBLASLt's descriptors, destroyed with their owner.
template <auto destroy>
class Owned {
 public:
  Owned() = default;
  Owned(const Owned&) = delete;
  ~Owned() {
    if (handle) (api().*destroy)(handle);
  }
  LtDesc handle = nullptr;
};

struct Layout : Owned<&Api::cublasLtMatrixLayoutDestroy> {
  // A row-major matrix, as the column-major one of its transpose.
  void make(DType dtype, int64_t rows, int64_t cols, int batch, int64_t stride) {
    ORT_BLAS(cublasLtMatrixLayoutCreate, &handle, real(dtype), static_cast<uint64_t>(cols),
             static_cast<uint64_t>(rows), std::max<int64_t>(cols, 1));
    if (batch <= 1) return;
    ORT_BLAS(cublasLtMatrixLayoutSetAttribute, handle, kBatchCount, &batch, sizeof batch);
    ORT_BLAS(cublasLtMatrixLayoutSetAttribute, handle, kBatchStride, &stride, sizeof stride);
  }
};

// The problem as cuBLASLt has it: one call, or one for each matrix where batches broadcast oddly.
struct Problem {
  Product p;
  DType in = DType::f32, out = DType::f32;
  bool row_bias = false, relu = false;  // that cuBLASLt adds and applies itself
  int batch = 1;
  int64_t a_stride = 0, b_stride = 0;  // in elements
  std::vector<MatrixAt> matrices;      // of several calls
};

class Plan {
 public:
  Plan(Gpu& gpu, const Problem& problem, int compute) : problem_(problem) {
    const Product& p = problem.p;
    const bool wide = problem.in == DType::f64;
    ORT_BLAS(cublasLtMatmulDescCreate, &desc_.handle, compute, wide ? kReal64 : kReal32);
    const int trans_a = p.trans_b, trans_b = p.trans_a;  // the operands change places
    set(kTransA, trans_a);
    set(kTransB, trans_b);
    int epilogue = problem.relu ? kReluEpilogue : 0;
    if (problem.row_bias) epilogue |= kBiasEpilogue;
    set(kEpilogue, epilogue ? epilogue : int{kNoEpilogue});
    p.trans_b ? b_.make(problem.in, p.n, p.k, problem.batch, problem.b_stride)
              : b_.make(problem.in, p.k, p.n, problem.batch, problem.b_stride);
    p.trans_a ? a_.make(problem.in, p.k, p.m, problem.batch, problem.a_stride)
              : a_.make(problem.in, p.m, p.k, problem.batch, problem.a_stride);
    y_.make(problem.out, p.m, p.n, problem.batch, p.m * p.n);
    choose(gpu);
  }
  size_t workspace() const { return found_.workspace; }

  void run(Gpu& gpu, const char* a, const char* b, const void* bias, char* y, void* workspace,
           StreamHandle stream) const {
    const double wide[] = {problem_.p.alpha, 0.0};
    const float narrow[] = {static_cast<float>(problem_.p.alpha), 0.0f};
    const bool doubles = problem_.in == DType::f64;
    const void* alpha = doubles ? static_cast<const void*>(wide) : narrow;
    const void* beta = doubles ? static_cast<const void*>(wide + 1) : narrow + 1;
    if (problem_.row_bias) {
      // The pointer lies in the descriptor, which other threads may be using.
      const std::lock_guard lock(mutex_);
      ORT_BLAS(cublasLtMatmulDescSetAttribute, desc_.handle, kBiasPointer, &bias, sizeof bias);
      return call(gpu, a, b, y, workspace, stream, alpha, beta);
    }
    call(gpu, a, b, y, workspace, stream, alpha, beta);
  }

 private:
  void call(Gpu& gpu, const char* a, const char* b, char* y, void* workspace, StreamHandle stream,
            const void* alpha, const void* beta) const {
    ORT_BLAS(cublasLtMatmul, gpu.blas(), desc_.handle, alpha, b, b_.handle, a, a_.handle, beta, y,
             y_.handle, y, y_.handle, &found_.algo, workspace, found_.workspace, stream);
  }

  void set(int attribute, int value) {
    ORT_BLAS(cublasLtMatmulDescSetAttribute, desc_.handle, attribute, &value, sizeof value);
  }

  void choose(Gpu& gpu) {
    Owned<&Api::cublasLtMatmulPreferenceDestroy> preference;
    ORT_BLAS(cublasLtMatmulPreferenceCreate, &preference.handle);
    ORT_BLAS(cublasLtMatmulPreferenceSetAttribute, preference.handle, kMaxWorkspace, &kWorkspace,
             sizeof kWorkspace);
    // Of operands that may begin anywhere: a caller's tensor is aligned to its elements alone.
    const auto aligned = static_cast<uint32_t>(size_of(problem_.in) == 8 ? 8 : 16);
    for (const int which : {kAlignmentA, kAlignmentB, kAlignmentC, kAlignmentD})
      ORT_BLAS(cublasLtMatmulPreferenceSetAttribute, preference.handle, which, &aligned,
               sizeof aligned);
    int count = 0;
    const Status status = api().cublasLtMatmulAlgoGetHeuristic(
        gpu.blas(), desc_.handle, b_.handle, a_.handle, y_.handle, y_.handle, preference.handle, 1,
        &found_, &count);
    check(status == kSuccess && count > 0,
          "cuBLASLt has no product of {} to {} with M {}, N {}, K {} (status {})", problem_.in,
          problem_.out, problem_.p.m, problem_.p.n, problem_.p.k, status);
  }

  const Problem problem_;
  Owned<&Api::cublasLtMatmulDescDestroy> desc_;
  Layout a_, b_, y_;
  LtHeuristic found_{};
  mutable std::mutex mutex_;
};

tile::Builder::Id activated(tile::Builder& b, const Activation& activation, tile::Builder::Id y) {
  using tile::Op;
  switch (activation.kind) {
    case Epilogue::none:
      return y;
    case Epilogue::relu:
      return b.emit(Op::relu, y);
    case Epilogue::tanh:
      return b.emit(Op::tanh, y);
    case Epilogue::sigmoid:
      return b.emit(Op::sigmoid, y);
    case Epilogue::silu:
      return b.emit(Op::silu, y);
    case Epilogue::gelu:
      return b.emit(Op::gelu, y);
    case Epilogue::gelu_tanh:
      return b.emit(Op::gelu_tanh, y);
    case Epilogue::clip:
      return b.emit(Op::min, b.emit(Op::max, y, b.constant(activation.low)),
                    b.constant(activation.high));
    case Epilogue::leaky_relu:
      return b.emit(Op::where, b.emit(Op::less, b.constant(0.0), y), y,
                    b.emit(Op::mul, y, b.constant(activation.low)));
    case Epilogue::hard_swish: {
      const auto slope = b.emit(Op::add, b.emit(Op::div, y, b.constant(6.0)), b.constant(0.5));
      const auto low = b.emit(Op::max, slope, b.constant(0.0));
      return b.emit(Op::mul, y, b.emit(Op::min, low, b.constant(1.0)));
    }
  }
  fail("activation '{}' has no instructions", name_of(activation.kind));
}

// y = activation(y + bias) over [.., M, N], in place.
std::unique_ptr<Kernel> finishing_kernel(const Request& r, const Product& p, bool with_bias) {
  const Sizes& y = r.out().sizes;
  const DType dtype = r.out().dtype;
  const int64_t cols = y.empty() ? 1 : y.back(),
                rows = element_count(y) / std::max<int64_t>(cols, 1);
  tile::Builder builder(dtype == DType::f64 ? DType::f64 : DType::f32);
  tile::Extent extent{rows, cols, {}};
  const tile::Port whole{tile::Space::full, dtype};
  auto value = builder.input(whole);
  if (with_bias) {
    Sizes strides = broadcast_strides(p.bias_sizes, y);
    const bool over_cols = !strides.empty() && strides.back() != 0;
    tile::Port port{over_cols ? tile::Space::full : tile::Space::column, r.in(*p.bias).dtype};
    port.strided = true;
    value = builder.emit(tile::Op::add, value, builder.input(port));
    Sizes sizes(y.begin(), y.end() - (y.empty() ? 0 : 1));
    strides.resize(sizes.size());
    extent.inputs = {{}, {std::move(sizes), std::move(strides)}};
  }
  builder.output(activated(builder, p.activation, value), whole);
  auto program = std::make_shared<const tile::TileProgram>(builder.finish());
  return make_tile_kernel(std::move(program), std::move(extent), "finish", r.out(0).device);
}

class ProductKernel final : public Kernel {
 public:
  ProductKernel(const Request& r, Problem problem, bool tile_bias)
      : gpu_(gpu_of(r)), problem_(std::move(problem)), name_(product_name(r, problem_.p)) {
    const Product& p = problem_.p;
    const int64_t bytes =
        element_count(r.out().sizes) * static_cast<int64_t>(size_of(problem_.out));
    y_bytes_ = static_cast<size_t>(bytes);
    const Current current(gpu_);
    if (p.k > 0 && bytes > 0) {
      plain_ = std::make_unique<Plan>(gpu_, problem_,
                                      problem_.in == DType::f64 ? kCompute64 : kCompute32);
      workspace_ = plain_->workspace();
      if (problem_.in == DType::f32) {
        tf32_ = std::make_unique<Plan>(gpu_, problem_, kComputeTf32);
        workspace_ = std::max(workspace_, tf32_->workspace());
      }
    }
    if (bytes > 0 && (tile_bias || (p.activation && !problem_.relu)))
      finish_ = finishing_kernel(r, p, tile_bias);
  }

  void run(const Args& args) const override {
    if (y_bytes_ == 0) return;
    multiply(args);
    if (!finish_) return;
    void* in[] = {args.out[0], problem_.p.bias ? args.in[*problem_.p.bias] : nullptr};
    finish_->run({in, args.out, nullptr, args.stream});
  }

  size_t scratch_bytes() const override { return workspace_ ? workspace_ + kAlign : 0; }
  bool may_be_recorded() const override { return true; }
  std::string name() const override { return name_; }

 private:
  void multiply(const Args& args) const {
    if (!plain_) return gpu_.memory().zero(args.out[0], y_bytes_, args.stream);
    const Current current(gpu_);
    const bool rounds = tf32_ && gpu_.switches();
    const Plan& plan = rounds ? *tf32_ : *plain_;
    const Product& p = problem_.p;
    const auto width = static_cast<int64_t>(size_of(problem_.in));
    const auto out_width = static_cast<int64_t>(size_of(problem_.out));
    void* workspace = reinterpret_cast<void*>(
        (reinterpret_cast<uintptr_t>(args.scratch) + kAlign - 1) / kAlign * kAlign);
    const void* bias = problem_.row_bias ? args.in[*p.bias] : nullptr;
    const StreamHandle stream = static_cast<Stream&>(args.stream).handle();
    int64_t at = 0;
    for (const MatrixAt& m : problem_.matrices)
      plan.run(gpu_, input<char>(args, 0) + m.a * p.m * p.k * width,
               input<char>(args, 1) + m.b * p.k * p.n * width, bias,
               output<char>(args) + at++ * p.m * p.n * out_width, workspace, stream);
  }

  Gpu& gpu_;
  Problem problem_;
  std::string name_;
  size_t y_bytes_ = 0, workspace_ = 0;
  std::unique_ptr<Plan> plain_, tf32_;
  std::unique_ptr<Kernel> finish_;
};

// Each operand has one matrix or as many as the result: then it is one call.
void spread(Problem& problem) {
  Product& p = problem.p;
  const int64_t count = element_count(p.batch);
  const auto step = [&](const Sizes& batch, int64_t matrix) -> std::optional<int64_t> {
    if (element_count(batch) == 1) return 0;
    return batch == p.batch ? std::optional(matrix) : std::nullopt;
  };
  const auto a = step(p.batch_a, p.m * p.k), b = step(p.batch_b, p.k * p.n);
  if (!a || !b) {
    problem.matrices = matrices_of(p);
    return;
  }
  problem.batch = static_cast<int>(count);
  problem.a_stride = *a;
  problem.b_stride = *b;
  problem.matrices = {{0, 0}};
}

std::unique_ptr<Kernel> make_product(const Request& r, Product p) {
  if (p.bias) p.bias_sizes = r.sizes(*p.bias);
  Problem problem;
  problem.p = std::move(p);
  problem.in = r.in(0).dtype;
  problem.out = r.out().dtype;
  const Product& own = problem.p;
  fold_batch(problem.p);
  spread(problem);
  const bool known = problem.in != DType::f64 && own.k > 0;
  problem.row_bias = known && own.bias && is_row_bias(own) &&
                     r.in(*own.bias).dtype == problem.out &&
                     own.bias_sizes.size() <= r.out().sizes.size();
  const bool bias_first = !own.bias || problem.row_bias;
  problem.relu = known && bias_first && own.activation.kind == Epilogue::relu;
  return std::make_unique<ProductKernel>(r, std::move(problem), own.bias && !problem.row_bias);
}

std::unique_ptr<Kernel> matmul_kernel(const Request& r) {
  return make_product(r, product_of(r, false, false));
}

std::unique_ptr<Kernel> fused_kernel(const Request& r) {
  Product p = product_of(r, r.attrs().i("trans_a", 0) != 0, r.attrs().i("trans_b", 0) != 0);
  p.alpha = r.attrs().f("alpha", 1.0);
  p.activation = activation_of(r.attrs());
  if (r.has(2)) p.bias = 2;
  return make_product(r, p);
}

std::unique_ptr<Kernel> linear_kernel(const Request& r) {
  Product p = product_of(r, false, true);
  p.activation = activation_of(r.attrs());
  if (r.has(2)) p.bias = 2;
  return make_product(r, p);
}

std::unique_ptr<Kernel> gemm_kernel(const Request& r) {
  Product p = product_of(r, r.attrs().i("transA", 0) != 0, r.attrs().i("transB", 0) != 0);
  p.alpha = r.attrs().f("alpha", 1.0);
  if (r.has(2)) p.bias = 2;
  return make_product(r, p);
}

// Operands of one dtype; a result of halves may be float32.
Verdict one_dtype(const Node& node) {
  const DType a = node.input(0).dtype(), b = node.input(1).dtype(), y = node.output().dtype();
  if (a != b) return Verdict::no(format("a is {}, b is {}", a, b));
  return require(y == a || (is_half(a) && y == DType::f32), "a is {}, y is {}", a, y);
}

Verdict plain_gemm(const Node& node) {
  const bool scaled = node.has_input(2) && node.attrs.f("beta", 1.0) != 1.0;
  return scaled ? Verdict::no("beta is not 1") : one_dtype(node);
}

}  // namespace

static void register_product(KernelTable& table) {
  table.op("MatMul").add("cublaslt", kFloating, one_dtype, matmul_kernel);
  table.op("Gemm").add("cublaslt", kFloating, plain_gemm, gemm_kernel);
  table.op("ort::MatMul").add("cublaslt", kFloating, one_dtype, fused_kernel);
  table.op("ort::Linear").add("cublaslt", kFloating, one_dtype, linear_kernel);
}

const Family<KernelTable> kProductKernels("cuda", "product", register_product);

}  // namespace ort::cuda
