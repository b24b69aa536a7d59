// Mutates ONNX files, reads them, plans and runs them on random feeds: an ort::Error is an answer,
// anything else a bug. Deterministic. onnx_session [rounds] [first seed] [corpus folder]; the
// built-in corpus is made with write_onnx.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "csrc/graph/text.h"
#include "csrc/onnx/onnx.h"
#include "csrc/ops/ops.h"
#include "csrc/passes/verify.h"
#include "csrc/session/inference_session.h"
#include "tests/fuzz/numbers.h"
#include "tests/fuzz/seeds.h"

// No file of a few kilobytes is worth a large allocation: one is reported as a crash.
extern "C" const char* __asan_default_options() {
  return "max_allocation_size_mb=256";
}

namespace {

using ort::DType, ort::Dim, ort::Graph, ort::Tensor, ort::Type, ort::Value;
using Random = std::mt19937_64;

Type floats(ort::Dims dims) {
  return Type::tensor(DType::f32, std::move(dims));
}

Value weight(Graph& graph, const ort::Sizes& sizes) {
  return graph.constant(Tensor::empty(DType::f32, sizes));
}

std::string mlp() {
  Graph graph(ort::default_ops());
  const Value x = graph.input("x", floats({Dim::symbol("n"), 4}));
  const Value h = graph.emit1("Gemm", {x, weight(graph, {4, 3}), weight(graph, {3})});
  const Value mean = graph.emit1("ReduceMean", {graph.emit1("Relu", {h}), graph.ints({1})},
                                 {{"keepdims", int64_t{0}}});
  graph.output(graph.emit1("Softmax", {h}, {{"axis", int64_t{-1}}}), "y");
  graph.output(mean, "mean");
  return ort::write_onnx(graph);
}

std::string conv() {
  Graph graph(ort::default_ops());
  const Value x = graph.input("image", floats({1, 2, Dim::symbol("h"), 8}));
  const Value y = graph.emit1(
      "Conv", {x, weight(graph, {3, 2, 3, 3}), weight(graph, {3})},
      {{"pads", std::vector<int64_t>{1, 1, 1, 1}}, {"strides", std::vector<int64_t>{2, 2}}});
  const Value pooled = graph.emit1("MaxPool", {y}, {{"kernel_shape", std::vector<int64_t>{2, 2}}});
  graph.output(graph.emit1("GlobalAveragePool", {pooled}), "y");
  return ort::write_onnx(graph);
}

// Sizes computed in the graph: the reader follows them, so hostile numbers reach shape rules.
std::string shapes() {
  Graph graph(ort::default_ops());
  const Value x = graph.input("x", floats({Dim::symbol("batch") * 2, 3, 4}));
  const Value size = graph.emit1("Gather", {graph.emit1("Shape", {x}), graph.ints({0})});
  const std::vector<Value> parts = {size, graph.ints({12})};
  const Value shape = graph.emit("Concat", parts, {{"axis", int64_t{0}}}, 1)[0];
  const Value flat = graph.emit1("Reshape", {x, shape});
  const Value cut = graph.emit1(
      "Slice", {flat, graph.ints({0}), graph.ints({6}), graph.ints({1}), graph.ints({2})});
  const Value wide = graph.emit1(
      "Expand", {graph.emit1("Unsqueeze", {cut, graph.ints({0})}), graph.ints({5, 1, 1})});
  const Value turned = graph.emit1("Transpose", {wide}, {{"perm", std::vector<int64_t>{1, 0, 2}}});
  graph.output(graph.emit1("Tile", {turned, graph.ints({1, 2, 1})}), "y");
  graph.output(graph.emit1("ConstantOfShape", {shape}), "zeros");
  graph.output(graph.emit1("Cast", {graph.emit1("Pad", {cut, graph.ints({0, 1, 0, 1})})},
                           {{"to", int64_t{7}}}),
               "z");
  return ort::write_onnx(graph);
}

Type ints(ort::Dims dims) {
  return Type::tensor(DType::i64, std::move(dims));
}

// Operands that are data: positions, counts and bounds of every kind.
std::string indices() {
  Graph graph(ort::default_ops());
  const Dim n = Dim::symbol("n"), m = Dim::symbol("m");
  const Value x = graph.input("x", floats({n, 4})), at = graph.input("at", ints({m, 4})),
              updates = graph.input("updates", floats({m, 4})), row = graph.input("row", ints({m}));
  graph.output(graph.emit1("GatherElements", {x, at}, {{"axis", int64_t{0}}}), "picked");
  graph.output(
      graph.emit1("ScatterElements", {x, at, updates}, {{"reduction", std::string("add")}}),
      "added");
  const Value tuples = graph.emit1("Unsqueeze", {row, graph.ints({1})});
  graph.output(graph.emit1("GatherND", {x, tuples}), "rows");
  graph.output(graph.emit1("ScatterND", {x, tuples, updates}), "written");
  graph.output(graph.emit1("Gather", {x, row}, {{"axis", int64_t{1}}}), "columns");
  const std::vector<Value> classes = {row, graph.scalar(5, DType::i64),
                                      graph.constant(Tensor::empty(DType::f32, {2}))};
  graph.output(graph.emit("OneHot", classes)[0], "hot");
  graph.output(graph.emit("TopK", std::vector<Value>{x, graph.ints({2})})[1], "best");
  graph.output(graph.emit1("CumSum", {x, graph.scalar(1, DType::i64)}), "sums");
  const std::vector<Value> halves = {x, graph.ints({1, 3})};
  graph.output(graph.emit("Split", halves, {{"axis", int64_t{1}}}, 2)[1], "part");
  return ort::write_onnx(graph);
}

// Sizes that meet: broadcasts, products, sums of letters.
std::string meetings() {
  Graph graph(ort::default_ops());
  const Dim a = Dim::symbol("a"), b = Dim::symbol("b");
  const Value x = graph.input("x", floats({a, 3})), y = graph.input("y", floats({b, 3}));
  graph.output(graph.emit1("Softmax", {graph.emit1("Add", {x, y})}), "sum");
  graph.output(graph.emit1("Where", {graph.emit1("Greater", {x, y}), x, y}), "larger");
  graph.output(graph.emit1("MatMul", {x, graph.emit1("Transpose", {y})}), "product");
  graph.output(
      graph.emit("Einsum", std::vector<Value>{x, y}, {{"equation", std::string("ij,ij->i")}})[0],
      "dots");
  const std::vector<Value> both = {x, y};
  graph.output(graph.emit("Concat", both, {{"axis", int64_t{0}}}, 1)[0], "joined");
  const Value shape = graph.emit1("Shape", {y});
  graph.output(graph.emit1("Expand", {x, shape}), "wide");
  graph.output(graph.emit1("Reshape", {x, shape}), "as_y");
  const Value norm = graph.emit1("LayerNormalization", {x, weight(graph, {3})});
  graph.output(graph.emit1("Tile", {norm, graph.ints({2, 1})}), "tiled");
  return ort::write_onnx(graph);
}

std::string recurrent() {
  Graph graph(ort::default_ops());
  const Dim t = Dim::symbol("t"), b = Dim::symbol("b");
  const Value x = graph.input("x", floats({t, b, 2})), h = graph.input("h", floats({1, b, 3}));
  const std::vector<Value> in = {
      x, weight(graph, {1, 12, 2}), weight(graph, {1, 12, 3}), Value{}, Value{}, h, h};
  graph.output(graph.emit("LSTM", in, {}, 3)[0], "y");
  const Value up = graph.emit1("Unsqueeze", {x, graph.ints({0})});
  graph.output(graph.emit1("ConvTranspose", {up, weight(graph, {1, 1, 2, 2})}), "z");
  return ort::write_onnx(graph);
}

// Graphs in graphs: trips, captures, states that change, branches.
std::string bodies() {
  return ort::write_onnx(*ort::parse(R"(
graph (%m: int64[] user, %go: bool[] user, %s: float32[b, 3] user, %xs: float32[t, 3] user)
  %axis = Constant() {value=int64[1]{0}}
  %r, %rows = Loop(%m, %go, %s, %xs) {captures=1}
    with body = graph (%i: int64[] user, %c: bool[] user, %u: float32[b, 3] user, %w: float32[t, 3] user)
      %n = ReduceSum(%w) {keepdims=0}
      %p = Greater(%n, %n)
      %v = If(%p, %u, %n) {captures=2}
        with then_branch = graph (%a: float32[b, 3] user, %d: float32[] user)
          %e = Mul(%a, %d)
        return ("e" = %e)
        with else_branch = graph (%a: float32[b, 3] user, %d: float32[] user)
          %e = Tanh(%a)
        return ("e" = %e)
      %c2 = Identity(%c)
    return ("c2" = %c2, "v" = %v, "row" = %v)
  %z = ReduceSum(%xs, %axis) {keepdims=0}
  %q, %ys = Scan(%z, %xs) {num_scan_inputs=1}
    with body = graph (%u: float32[3] user, %x: float32[3] user)
      %v = Add(%u, %x)
    return ("v" = %v, "y" = %v)
return ("r" = %r, "rows" = %rows, "q" = %q, "ys" = %ys)
)",
                                     ort::default_ops()));
}

// Sizes that only a run tells, and what is no tensor.
std::string late() {
  Graph graph(ort::default_ops());
  const Value x = graph.input("x", floats({Dim::symbol("n"), 4}));
  const Value at = graph.emit1("NonZero", {graph.emit1("Relu", {x})});
  const Value rows = graph.emit1("Transpose", {at}, {{"perm", std::vector<int64_t>{1, 0}}});
  const Value found = graph.emit1("GatherND", {x, rows});
  graph.output(found, "found");
  const std::vector<Value> one = {found};
  graph.output(graph.emit("Unique", one, {{"sorted", int64_t{1}}}, 4)[0], "unique");
  const Value count = graph.emit1("Shape", {found});
  graph.output(graph.emit1("Expand", {graph.scalar(1, DType::f32), count}), "ones");
  const Value parts = graph.emit("SplitToSequence", std::vector<Value>{x, graph.ints({1})},
                                 {{"axis", int64_t{1}}}, 1)[0];
  graph.output(graph.emit1("SequenceAt", {parts, graph.scalar(1, DType::i64)}), "part");
  graph.output(graph.emit1("ConcatFromSequence", {parts}, {{"axis", int64_t{0}}}), "joined");
  return ort::write_onnx(graph);
}

std::vector<std::string> corpus_of(const char* folder) {
  std::vector<std::string> corpus;
  if (!folder) {
    corpus = seeds::models();
    for (const auto make : {mlp, conv, shapes, indices, meetings, recurrent, bodies, late})
      for (int i = 0; i < 4; ++i) corpus.push_back(make());  // they are richer
    return corpus;
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return corpus;
}

size_t below(Random& random, size_t end) {
  return end ? random() % end : 0;
}

// A number as protobuf writes it; extreme ones often.
std::string varint(Random& random) {
  static constexpr uint64_t kExtreme[] = {
      0, 1, 2, 255, 0x7fffffff, 0xffffffff, 0x7fffffffffffffff, 0x8000000000000000, ~uint64_t{0}};
  uint64_t value =
      random() % 2 ? kExtreme[below(random, std::size(kExtreme))] : random() >> below(random, 64);
  std::string bytes;
  for (; value >= 128; value >>= 7) bytes += static_cast<char>(value | 128);
  return bytes + static_cast<char>(value);
}

// One number of the model at a corner of int64 or of what is computed in fewer bits.
void mutate_number(std::string& bytes, Random& random) {
  static constexpr int64_t kCorners[] = {INT64_MIN,
                                         INT64_MIN + 1,
                                         INT64_MAX,
                                         INT64_MAX - 1,
                                         -1,
                                         0,
                                         1,
                                         2,
                                         -2,
                                         3,
                                         5,
                                         int64_t{1} << 31,
                                         (int64_t{1} << 31) - 1,
                                         -(int64_t{1} << 31),
                                         int64_t{1} << 32,
                                         int64_t{1} << 62};
  const auto value = static_cast<uint64_t>(kCorners[below(random, std::size(kCorners))]);
  bytes = numbers::with_number(bytes, below(random, numbers::count(bytes)), value);
}

void mutate(std::string& bytes, const std::vector<std::string>& corpus, Random& random) {
  const size_t at = below(random, bytes.size());
  switch (random() % 10) {  // mostly in place: the lengths of the messages around it stay right
    default:
      if (!bytes.empty()) bytes[at] ^= static_cast<char>(1 << random() % 8);
      break;
    case 1:
      if (!bytes.empty()) bytes[at] = static_cast<char>(random());
      break;
    case 2: {  // a varint in the place of as many bytes as it has, or of one
      const std::string number = varint(random);
      bytes.replace(at, random() % 2 ? number.size() : 1, number);
      break;
    }
    case 3:
      bytes.resize(at);
      break;
    case 4: {
      const std::string& other = corpus[below(random, corpus.size())];
      bytes.insert(at, other.substr(below(random, other.size()), below(random, 64)));
      break;
    }
    case 5:
      bytes.erase(at, below(random, 16));
  }
}

constexpr int64_t kMostElements = 1 << 14;  // of a feed
constexpr ort::SessionLimits kLimits{size_t{16} << 20, 1e8};
constexpr double kMostSeconds = 10;

bool is_signed(const Type& type) {
  return ort::is_floating(type.dtype) || ort::is_signed_integer(type.dtype);
}

Tensor random_tensor(const Type& type, Random& random) {
  static constexpr int64_t kSizes[] = {0, 1, 1, 2, 3, 3, 4, 5, 17};
  ort::Sizes sizes;
  for (const Dim& dim : type.dims.value_or(ort::Dims{}))
    sizes.push_back(dim.value().value_or(kSizes[below(random, std::size(kSizes))]));
  ort::check(ort::element_count(sizes) <= kMostElements, "a feed of {}", sizes);
  if (type.dtype == DType::string) {
    std::vector<std::string> texts(static_cast<size_t>(ort::element_count(sizes)), "text");
    return Tensor::of_strings(std::move(texts), sizes);
  }
  Tensor tensor = Tensor::empty(type.dtype, sizes);
  const bool wild = random() % 4 == 0;  // any bits, else small numbers
  for (int64_t i = 0; i < tensor.count(); ++i) {
    if (type.dtype == DType::boolean)
      tensor.as<uint8_t>()[i] = random() % 2;
    else if (wild || ort::is_complex(type.dtype))
      for (size_t b = 0; b < ort::size_of(type.dtype); ++b)
        tensor.as<uint8_t>()[static_cast<size_t>(i) * ort::size_of(type.dtype) + b] =
            static_cast<uint8_t>(random());
    else
      ort::set_element(tensor, i, static_cast<double>(random() % 7) - (is_signed(type) ? 2 : 0));
  }
  return tensor;
}

struct Counts {
  uint64_t graphs = 0, sessions = 0, runs = 0;
};

void read_and_run(const std::string& bytes, Random& random, Counts& counts) {
  const auto graph = ort::read_onnx(bytes, ort::default_ops());
  ort::verify(*graph, "read");
  if (ort::print(*graph).empty()) throw std::runtime_error("a graph without text");
  ++counts.graphs;
  ort::CompileOptions options;
  options.providers = {"cpu", "reference"};
  ort::InferenceSession session(*graph, options, kLimits);
  ++counts.sessions;
  for (int run = 0; run < 2; ++run) {
    std::map<std::string, ort::Item> feed;
    for (const auto& port : session.inputs()) feed[port.name] = random_tensor(port.type, random);
    try {
      session.run({}, feed);
      ++counts.runs;
    } catch (const ort::Error&) {
    }
  }
}

void answer(const std::string& bytes, Random& random, Counts& counts) {
  const auto start = std::chrono::steady_clock::now();
  try {
    read_and_run(bytes, random, counts);
  } catch (const ort::Error&) {
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (took.count() > kMostSeconds) throw std::runtime_error("it took too long");
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t rounds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2000;
  const uint64_t first = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  const std::vector<std::string> corpus = corpus_of(argc > 3 ? argv[3] : nullptr);
  uint64_t seed = first;
  Counts counts;
  try {
    Random feeds(0);
    for (const std::string& bytes : corpus) read_and_run(bytes, feeds, counts);
    for (; seed < first + rounds; ++seed) {
      Random random(seed);
      std::string bytes = corpus[below(random, corpus.size())];
      const size_t count = 1 + below(random, 3);
      const bool whole = random() % 2 != 0;
      for (size_t i = 0; i < count; ++i)
        whole ? mutate_number(bytes, random) : mutate(bytes, corpus, random);
      answer(bytes, random, counts);
    }
  } catch (const std::exception& error) {
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), error.what());
    return 1;
  }
  std::printf("%llu mutations: %llu graphs, %llu sessions, %llu runs\n",
              static_cast<unsigned long long>(rounds),
              static_cast<unsigned long long>(counts.graphs),
              static_cast<unsigned long long>(counts.sessions),
              static_cast<unsigned long long>(counts.runs));
  return 0;
}
