// Col2Im and Im2Col.
#include "providers/blocks.h"

#include "providers/reference/reference.h"

namespace ort::reference {
namespace {

ImageBlocks blocks_of(const KernelCall& c, const Sizes& image, size_t block) {
  const std::vector<int64_t> sizes = c.ints(block);
  c.require(image.size() == sizes.size() + 2, "the image has shape {}, block_shape is {}", image,
            sizes);
  for (const int64_t size : sizes) c.require(size > 0, "block_shape {} must be positive", sizes);
  return {c.attrs(), Sizes(image.begin() + 2, image.end()), sizes};
}

void col2im(const KernelCall& c) {
  const Sizes& image = c.out_sizes();
  const ImageBlocks blocks = blocks_of(c, image, 2);
  const int64_t channel = blocks.rows() * blocks.columns();
  c.require(element_count(c.sizes()) == image[0] * image[1] * channel,
            "input has shape {}, the image {}", c.sizes(), image);
  wide(c.dtype(), [&]<class W>() {
    const std::vector<W> x = c.all<W>(0);
    std::vector<W> y(static_cast<size_t>(element_count(image)), W{});
    for (int64_t plane = 0; plane < image[0] * image[1]; ++plane)
      blocks.each_run([&](int64_t from, int64_t to, int64_t count, int64_t step) {
        for (int64_t i = 0; i < count; ++i) {
          W& sum = y[static_cast<size_t>(plane * blocks.plane() + to + i * step)];
          sum = add(sum, x[static_cast<size_t>(plane * channel + from + i)]);
        }
      });
    c.write(0, y);
  });
}

void im2col(const KernelCall& c) {
  const ImageBlocks blocks = blocks_of(c, c.sizes(), 1);
  const int64_t planes = c.sizes()[0] * c.sizes()[1], channel = blocks.rows() * blocks.columns();
  c.expect_count(0, planes * channel);
  fill_zero(c, 0);
  const Bytes move = bytes(c, 0);
  for (int64_t plane = 0; plane < planes; ++plane)
    blocks.each_run([&](int64_t to, int64_t from, int64_t count, int64_t step) {
      for (int64_t i = 0; i < count; ++i)
        move.copy(plane * channel + to + i, plane * blocks.plane() + from + i * step);
    });
}

}  // namespace

static void register_blocks(KernelTable& table) {
  add(table, "Col2Im", kNumbers, col2im);
  add(table, "ort::Im2Col", kNumbers, im2col);
}

const Family<KernelTable> kBlocksKernels("reference", "blocks", register_blocks);

}  // namespace ort::reference
