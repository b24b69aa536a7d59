// Mutates ONNX files and reads them: an ort::Error is an answer, anything else a bug.
// Deterministic. onnx_reader [rounds] [first seed] [corpus folder]; the built-in corpus is made
// with write_onnx.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "csrc/graph/onnx.h"
#include "csrc/graph/text.h"
#include "csrc/graph/verify.h"
#include "csrc/ops/ops.h"

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

std::vector<std::string> corpus_of(const char* folder) {
  std::vector<std::string> corpus = {mlp(), conv(), shapes()};
  if (!folder) return corpus;
  corpus.clear();
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

// True when it was a graph.
bool try_read(const std::string& bytes) {
  try {
    const auto graph = ort::read_onnx(bytes, "", ort::default_ops());
    ort::verify(*graph, "read");
    return !ort::print(*graph).empty();
  } catch (const ort::Error&) {
    return false;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t rounds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 100000;
  const uint64_t first = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  const std::vector<std::string> corpus = corpus_of(argc > 3 ? argv[3] : nullptr);
  uint64_t seed = first, graphs = 0;
  try {
    for (const std::string& bytes : corpus)
      if (!try_read(bytes)) throw std::runtime_error("a corpus file is no graph");
    for (; seed < first + rounds; ++seed) {
      Random random(seed);
      std::string bytes = corpus[below(random, corpus.size())];
      const size_t count = 1 + below(random, 3);
      for (size_t i = 0; i < count; ++i) mutate(bytes, corpus, random);
      graphs += try_read(bytes);
    }
  } catch (const std::exception& error) {
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), error.what());
    return 1;
  }
  std::printf("%llu mutations, %llu of them graphs\n", static_cast<unsigned long long>(rounds),
              static_cast<unsigned long long>(graphs));
  return 0;
}
