// Ensembles of trees: rows in tiles down blocks of trees. A row's sums are in double, tree by tree
// within a block and then block by block, so that they are the same for any number of threads.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <type_traits>
#include <vector>

#include "csrc/core/mutex.h"
#include "csrc/core/parallel.h"
#include "csrc/ops/ml/forest.h"
#include "providers/cpu/provider.h"

namespace ort::cpu {
namespace {

using ml::Test;

constexpr int64_t kTile = 64;     // rows that go down one tree before the next
constexpr int64_t kTogether = 8;  // rows, or trees, whose steps overlap: each waits for memory
constexpr int64_t kFew = 4;       // rows that go down one by one, each down some trees at once
constexpr int64_t kBlock = 32;    // trees whose sum is a unit of work
constexpr int64_t kSteps = 16;    // down a tree, about
constexpr int kTestBits = 3;

enum class Aggregate : uint8_t { sum, least, most };

// As ort::TreeEnsemble has them, what a step reads side by side.
template <class T>
struct Trees {
  struct Node {
    T split;
    uint32_t feature_and_test;
    int32_t to[2];  // yes, no
  };
  struct Entry {
    int32_t target;
    T weight;
  };
  std::vector<Node> nodes;
  std::vector<int32_t> roots, leaves;
  std::vector<Entry> entries;
  std::vector<double> base;
  std::optional<Test> only;  // where every node asks the same and NaN never is yes
  Aggregate aggregate = Aggregate::sum;
  bool average = false;
  int64_t targets = 0;

  int64_t blocks() const { return (static_cast<int64_t>(roots.size()) + kBlock - 1) / kBlock; }
};

const Tensor& tensor(const Attrs& attrs, std::string_view name) {
  return std::get<Tensor>(*attrs.find(name));
}

template <class T>
std::vector<T> elements(const Tensor& from) {
  std::vector<T> made(static_cast<size_t>(from.count()));
  for (size_t i = 0; i < made.size(); ++i)
    made[i] = static_cast<T>(element_as_double(from, static_cast<int64_t>(i)));
  return made;
}

template <class T>
std::shared_ptr<const Trees<T>> read_trees(const Attrs& attrs) {
  auto made = std::make_shared<Trees<T>>();
  const Tensor& nodes = tensor(attrs, "nodes");
  const auto splits = elements<T>(tensor(attrs, "splits"));
  bool uniform = true;
  for (int64_t i = 0; i < nodes.sizes[0]; ++i) {
    const int32_t* node = nodes.as<int32_t>() + i * ml::kNodeColumns;
    const auto test = static_cast<uint32_t>(node[0]);
    made->nodes.push_back({splits[static_cast<size_t>(i)],
                           static_cast<uint32_t>(node[1]) << kTestBits | test,
                           {node[2], node[3]}});
    uniform &= node[0] == *nodes.as<int32_t>() && test < ml::kMissing;
  }
  if (uniform && !made->nodes.empty()) made->only = static_cast<Test>(*nodes.as<int32_t>());
  made->roots = elements<int32_t>(tensor(attrs, "roots"));
  made->leaves = elements<int32_t>(tensor(attrs, "leaves"));
  const auto targets = elements<int32_t>(tensor(attrs, "targets"));
  const auto weights = elements<T>(tensor(attrs, "weights"));
  for (size_t k = 0; k < targets.size(); ++k) made->entries.push_back({targets[k], weights[k]});
  if (attrs.has("base")) made->base = elements<double>(tensor(attrs, "base"));
  const std::string& aggregate = attrs.s("aggregate");
  made->aggregate = aggregate == "MIN"   ? Aggregate::least
                    : aggregate == "MAX" ? Aggregate::most
                                         : Aggregate::sum;
  made->average = aggregate == "AVERAGE";
  made->targets = attrs.i("n_targets");
  return made;
}

// Read once for all kernels of a node, and as long as one holds them. The key's memory stays as
// long: it is the node's.
template <class T>
std::shared_ptr<const Trees<T>> trees_of(const Attrs& attrs) {
  static auto& mutex = *new Mutex;
  static auto& known = *new std::map<const void*, std::weak_ptr<const Trees<T>>>;
  const std::lock_guard lock(mutex);
  std::erase_if(known, [](const auto& entry) { return entry.second.expired(); });
  const Tensor& nodes = tensor(attrs, "nodes");
  std::weak_ptr<const Trees<T>>& slot = known[nodes.data];
  if (auto found = slot.lock()) return found;
  // What holds the trees holds the memory that they are known by.
  struct Held {
    std::shared_ptr<const Trees<T>> trees;
    std::shared_ptr<const void> owner;
  };
  auto held = std::make_shared<Held>(Held{read_trees<T>(attrs), nodes.owner});
  std::shared_ptr<const Trees<T>> made(held, held->trees.get());
  slot = made;
  return made;
}

// kOnly: the test of every node, or 3 where they differ.
template <int kOnly, class T>
bool answer(const typename Trees<T>::Node& node, T x) {
  constexpr auto kAll = static_cast<Test>(kOnly);
  if constexpr (kAll == Test::at_most) return x <= node.split;
  if constexpr (kAll == Test::below) return x < node.split;
  if constexpr (kAll == Test::equal) return x == node.split;
  const auto test = static_cast<Test>(node.feature_and_test & 3);
  const bool missing = (node.feature_and_test & ml::kMissing) != 0;
  const bool less = test == Test::at_most ? x <= node.split : x < node.split;
  return (test == Test::equal ? x == node.split : less) | (missing & (x != x));
}

// One run over rows of F features.
template <int kOnly, class T>
class Walk {
 public:
  Walk(const Trees<T>& trees, const T* x, int64_t width) : trees_(trees), x_(x), width_(width) {}

  // sums[row, target] of rows from `row` on, for the trees of a block.
  void block(int64_t block, int64_t row, int64_t rows, double* sums) const {
    const double none =
        trees_.aggregate == Aggregate::sum ? 0.0 : std::numeric_limits<double>::quiet_NaN();
    std::fill_n(sums, rows * trees_.targets, none);
    const int64_t end = std::min(static_cast<int64_t>(trees_.roots.size()), (block + 1) * kBlock);
    if (rows <= kFew) {
      for (int64_t k = 0; k < rows; ++k)
        for (int64_t tree = block * kBlock; tree < end; tree += kTogether)
          trees_together(tree, std::min(kTogether, end - tree), row + k, sums + k * trees_.targets);
      return;
    }
    for (int64_t tree = block * kBlock; tree < end; ++tree)
      for (int64_t first = 0; first < rows; first += kTogether)
        rows_together(trees_.roots[static_cast<size_t>(tree)], row + first,
                      std::min(kTogether, rows - first), sums + first * trees_.targets);
  }

  // Adds sums of another block; NaN is that no tree gave any.
  void join(double* sums, const double* others, int64_t count) const {
    for (int64_t i = 0; i < count; ++i) sums[i] = joined(sums[i], others[i]);
  }

 private:
  double joined(double sum, double other) const {
    if (trees_.aggregate == Aggregate::sum) return sum + other;
    if (std::isnan(sum) || std::isnan(other)) return std::isnan(sum) ? other : sum;
    return trees_.aggregate == Aggregate::least ? std::min(sum, other) : std::max(sum, other);
  }

  void rows_together(int32_t root, int64_t row, int64_t rows, double* sums) const {
    int32_t at[kTogether];
    std::fill_n(at, rows, root);
    descend(at, rows, root,
            [x = x_ + row * width_, width = width_](int64_t k) { return x + k * width; });
    for (int64_t k = 0; k < rows; ++k) add(~at[k], sums + k * trees_.targets);
  }

  // One row down some trees, whose leaves are added in their order.
  void trees_together(int64_t tree, int64_t count, int64_t row, double* sums) const {
    int32_t at[kTogether];
    std::copy_n(trees_.roots.begin() + tree, count, at);
    const T* x = x_ + row * width_;
    descend(at, count, *std::max_element(at, at + count), [x](int64_t) { return x; });
    for (int64_t k = 0; k < count; ++k) add(~at[k], sums);
  }

  // From where they are to leaves, a step of each in turns. `idle`: a node, if any is at one.
  template <class X>
  void descend(int32_t* at, int64_t count, int32_t idle, X x_of) const {
    if (count == kTogether)
      steps(at, std::integral_constant<int64_t, kTogether>(), idle, x_of);
    else
      steps(at, count, idle, x_of);
  }

  template <class Count, class X>
  void steps(int32_t* __restrict at, Count count, int32_t idle, X x_of) const {
    const auto* nodes = trees_.nodes.data();
    for (bool open = idle >= 0; open;) {
      open = false;
      for (int64_t k = 0; k < count; ++k) {
        // Without a branch, which could not be foretold: who is at a leaf asks `idle`, and stays.
        const int32_t now = at[k];
        const auto& node = nodes[now < 0 ? idle : now];
        const T x = x_of(k)[node.feature_and_test >> kTestBits];
        const int32_t next = node.to[answer<kOnly, T>(node, x) ? 0 : 1];
        at[k] = now < 0 ? now : next;
        open |= at[k] >= 0;
      }
    }
  }

  void add(int32_t leaf, double* sums) const {
    const auto from = static_cast<size_t>(trees_.leaves[static_cast<size_t>(leaf)]);
    const auto to = static_cast<size_t>(trees_.leaves[static_cast<size_t>(leaf) + 1]);
    for (size_t k = from; k < to; ++k) {
      const auto& entry = trees_.entries[k];
      sums[entry.target] = joined(sums[entry.target], static_cast<double>(entry.weight));
    }
  }

  const Trees<T>& trees_;
  const T* x_;
  const int64_t width_;
};

// Writes the sums of some rows, with what is added to all of them.
template <class T>
void finish(const Trees<T>& trees, const double* sums, int64_t rows, T* y) {
  const double divisor = trees.average ? static_cast<double>(trees.roots.size()) : 1.0;
  for (int64_t i = 0; i < rows * trees.targets; ++i) {
    const double sum = std::isnan(sums[i]) && trees.aggregate != Aggregate::sum ? 0.0 : sums[i];
    const double base =
        trees.base.empty() ? 0.0 : trees.base[static_cast<size_t>(i % trees.targets)];
    y[i] = static_cast<T>(sum / divisor + base);
  }
}

struct Size {
  int64_t rows, width;
};

// Tiles of rows are units of work where there are enough of them, else tiles and blocks of trees.
template <int kOnly, class T>
void run(const Trees<T>& trees, Size size, const T* x, T* y) {
  const Walk<kOnly, T> walk(trees, x, size.width);
  const int64_t blocks = trees.blocks(), tiles = (size.rows + kTile - 1) / kTile;
  const int64_t work = size.rows * static_cast<int64_t>(trees.roots.size()) * kSteps;
  const int64_t most = std::min(kTile, size.rows) * trees.targets;
  const auto rows_in = [&](int64_t tile) { return std::min(kTile, size.rows - tile * kTile); };
  const auto total = [&](int64_t tile, auto&& sums_of, double* sums) {
    const int64_t rows = rows_in(tile);
    std::fill_n(sums, rows * trees.targets, trees.aggregate == Aggregate::sum ? 0.0 : NAN);
    for (int64_t b = 0; b < blocks; ++b) walk.join(sums, sums_of(b), rows * trees.targets);
    finish(trees, sums, rows, y + tile * most);
  };
  if (tiles >= threads_for(work, tiles * blocks)) {
    parallel_for(tiles, work, [&](int64_t begin, int64_t end, int) {
      std::vector<double> sums(static_cast<size_t>(2 * most));
      for (int64_t tile = begin; tile < end; ++tile)
        total(
            tile,
            [&](int64_t b) {
              walk.block(b, tile * kTile, rows_in(tile), sums.data() + most);
              return sums.data() + most;
            },
            sums.data());
    });
    return;
  }
  std::vector<double> parts(static_cast<size_t>(tiles * blocks * most)),
      sums(static_cast<size_t>(most));
  const auto part = [&](int64_t unit) { return parts.data() + unit * most; };
  parallel_for(tiles * blocks, work, [&](int64_t begin, int64_t end, int) {
    for (int64_t unit = begin; unit < end; ++unit)
      walk.block(unit % blocks, unit / blocks * kTile, rows_in(unit / blocks), part(unit));
  });
  for (int64_t tile = 0; tile < tiles; ++tile)
    total(tile, [&](int64_t b) { return part(tile * blocks + b); }, sums.data());
}

template <class T>
std::unique_ptr<Kernel> tree_ensemble(const Request& r) {
  const auto trees = trees_of<T>(r.attrs());
  const Size size{r.sizes(0)[0], r.sizes(0)[1]};
  const auto f = trees->only == Test::at_most ? run<0, T>
                 : trees->only == Test::below ? run<1, T>
                                              : run<3, T>;
  return make_kernel(
      "trees", [=](const Args& args) { f(*trees, size, input<T>(args, 0), output<T>(args)); });
}

}  // namespace

static void register_trees(KernelTable& table) {
  table.op("ort::TreeEnsemble")
      .add("trees", kF32, tree_ensemble<float>)
      .add("trees", kF64, tree_ensemble<double>);
}

const Family<KernelTable> kTreesKernels("cpu", "ml/trees", register_trees);

}  // namespace ort::cpu
