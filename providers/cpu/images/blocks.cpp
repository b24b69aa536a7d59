// Col2Im and Im2Col: runs along the last axis, a channel of an image a unit of work.
#include "providers/blocks.h"

#include <cstring>

#include "csrc/core/parallel.h"
#include "providers/cpu/provider.h"

namespace ort::cpu {
namespace {

struct WindowProblem {
  ImageBlocks blocks;
  int64_t planes, plane, channel;

  WindowProblem(const Request& r, const Sizes& image, size_t block)
      : blocks(r.attrs(), Sizes(image.begin() + 2, image.end()), sizes_in(r, image, block)),
        planes(image[0] * image[1]),
        plane(blocks.plane()),
        channel(blocks.rows() * blocks.columns()) {}

 private:
  static Sizes sizes_in(const Request& r, const Sizes& image, size_t block) {
    const std::vector<int64_t> sizes = *r.ints(block);
    if (image.size() != sizes.size() + 2 ||
        std::any_of(sizes.begin(), sizes.end(), [](int64_t size) { return size < 1; }))
      r.refuse("the image has shape {}, block_shape is {}", image, sizes);
    return sizes;
  }
};

template <class T>
std::unique_ptr<Kernel> col2im(const Request& r) {
  const WindowProblem p(r, r.out().sizes, 2);
  if (element_count(r.sizes(0)) != p.planes * p.channel)
    r.refuse("input has shape {}, the image {}", r.sizes(0), r.out().sizes);
  return make_kernel("Col2Im", [=](const Args& args) {
    parallel_for(p.planes, p.planes * p.channel / 4, [&](int64_t begin, int64_t end, int) {
      for (int64_t at = begin; at < end; ++at) {
        const T* x = input<T>(args, 0) + at * p.channel;
        T* y = output<T>(args) + at * p.plane;
        std::fill_n(y, p.plane, T{});
        p.blocks.each_run([&](int64_t from, int64_t to, int64_t count, int64_t step) {
          for (int64_t i = 0; i < count; ++i) y[to + i * step] += x[from + i];
        });
      }
    });
  });
}

// Of elements as large as T.
template <class T>
std::unique_ptr<Kernel> im2col(const Request& r) {
  const WindowProblem p(r, r.sizes(0), 1);
  return make_kernel("Im2Col", [=](const Args& args) {
    parallel_for(p.planes, p.planes * p.channel / 8, [&](int64_t begin, int64_t end, int) {
      for (int64_t at = begin; at < end; ++at) {
        const T* x = input<T>(args, 0) + at * p.plane;
        T* y = output<T>(args) + at * p.channel;
        std::memset(y, 0, static_cast<size_t>(p.channel) * sizeof(T));
        p.blocks.each_run([&](int64_t to, int64_t from, int64_t count, int64_t step) {
          if (step == 1)
            std::memcpy(y + to, x + from, static_cast<size_t>(count) * sizeof(T));
          else
            for (int64_t i = 0; i < count; ++i) y[to + i] = x[from + i * step];
        });
      }
    });
  });
}

std::unique_ptr<Kernel> im2col_of(const Request& r) {
  switch (size_of(r.in(0).dtype)) {
    case 1:
      return im2col<uint8_t>(r);
    case 2:
      return im2col<uint16_t>(r);
    case 4:
      return im2col<uint32_t>(r);
    default:
      return im2col<uint64_t>(r);
  }
}

// The sizes of a block.
When block_is_known(size_t block) {
  return [block](const Node& node) {
    const bool told = constant_of(node.input(block)) || node.graph->contents(node.in[block]);
    return require(told, "block_shape is known only at run time");
  };
}

}  // namespace

static void register_blocks(KernelTable& table) {
  table.op("Col2Im")
      .add("runs", kF32, block_is_known(2), col2im<float>)
      .add("runs", kF64, block_is_known(2), col2im<double>);
  table.op("ort::Im2Col").add("runs", kNumbers, block_is_known(1), im2col_of);
}

const Family<KernelTable> kBlocksKernels("cpu", "blocks", register_blocks);

}  // namespace ort::cpu
