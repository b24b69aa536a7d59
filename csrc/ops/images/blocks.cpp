// Blocks of an image as columns, and columns summed into an image: each is the other's transpose.
#include "csrc/ops/ops.h"

namespace ort {
namespace {

// Blocks that lie over an image, by axis.
struct Blocks {
  Dims block;
  std::vector<int64_t> strides, dilations, pads;

  Dim size() const { return product(block); }
  Dim count(const Dims& image, size_t axis) const {
    const Dim reach = (block[axis] - 1) * Dim(dilations[axis]) + 1;
    const Dim room = image[axis] + pads[axis] + pads[axis + block.size()];
    return floor_div(room - reach, strides[axis]) + 1;
  }
};

std::optional<Blocks> blocks_of(InferContext& c, size_t input) {
  const auto known = c.contents(input);
  if (!known) return std::nullopt;
  Blocks b;
  b.block = *known;
  const size_t n = b.block.size();
  b.strides = ints_or(c.attrs(), "strides", n, 1);
  b.dilations = ints_or(c.attrs(), "dilations", n, 1);
  b.pads = ints_or(c.attrs(), "pads", 2 * n, 0);
  c.require(n > 0 && b.strides.size() == n && b.dilations.size() == n && b.pads.size() == 2 * n,
            "block_shape {}, strides {}, dilations {} and pads {} do not fit each other", b.block,
            b.strides, b.dilations, b.pads);
  expect_small(c, "strides", b.strides);
  expect_small(c, "dilations", b.dilations);
  expect_small(c, "pads", b.pads);
  for (size_t i = 0; i < n; ++i) {
    c.require(b.strides[i] > 0 && b.dilations[i] > 0 && b.pads[i] >= 0 && b.pads[n + i] >= 0 &&
                  b.block[i].value().value_or(1) > 0,
              "block_shape {}, strides {} and dilations {} must be positive, pads {} not negative",
              b.block, b.strides, b.dilations, b.pads);
    if (const auto size = b.block[i].value()) expect_small(c, "block_shape", {*size});
    c.assume(at_least(b.block[i], 1), "size of a block");
  }
  return b;
}

Dim all_blocks(InferContext& c, const Blocks& b, const Dims& image) {
  Dim count = 1;
  for (size_t i = 0; i < image.size(); ++i) {
    const Dim along = b.count(image, i);
    c.require(along.value().value_or(0) >= 0, "no block {} fits into an image of {} with pads {}",
              b.block, image, b.pads);
    c.assume(at_least(along, 0), "number of blocks");
    count = count * along;
  }
  return count;
}

// input [N, C product(block), L] to [N, C, image..].
void infer_col2im(InferContext& c) {
  const auto image = c.contents(1);
  const auto b = blocks_of(c, 2);
  c.require(!c.ranked(0) || c.rank() == 3,
            "input has shape {}, expected [N, C product(block_shape), L]",
            c.ranked(0) ? c.dims() : Dims{});
  if (!image || !c.ranked(0) || !b) {
    if (c.ranked(0) && image) {
      Dims dims(image->size() + 2);
      dims[0] = c.dims()[0], dims[1] = c.fresh();
      std::copy(image->begin(), image->end(), dims.begin() + 2);
      return c.out(0, c.dtype(), std::move(dims));
    }
    return c.out(0, c.dtype(), std::nullopt);
  }
  const Dims& x = c.dims();
  c.require(image->size() == b->block.size(), "image_shape is {}, block_shape {}", *image,
            b->block);
  for (const Dim& size : *image) {
    c.require(size.value().value_or(0) >= 0, "image_shape is {}, which has a negative size",
              *image);
    c.assume(at_least(size, 0), "image_shape");
  }
  const Dim count = all_blocks(c, *b, *image), rows = b->size();
  c.require(may_be_equal(x[2], count), "input has shape {}, of an image of {} there are {} blocks",
            x, *image, count);
  c.assume_equal({x[2]}, {count}, "number of blocks");
  c.require(!x[1].value() || !rows.value() || *x[1].value() % *rows.value() == 0,
            "input has shape {}, whose rows are no multiple of a block of {}", x, b->block);
  const Dim channels = floor_div(x[1], rows);
  c.assume_equal({x[1]}, {channels * rows}, "rows");
  Dims dims{x[0], channels};
  dims.insert(dims.end(), image->begin(), image->end());
  c.out(0, c.dtype(), std::move(dims));
}

// [N, C, image..] to [N, C product(block), L].
void infer_im2col(InferContext& c) {
  const auto b = blocks_of(c, 1);
  if (!c.ranked(0) || !b) return c.out(0, c.dtype(), std::nullopt);
  const Dims& x = c.dims();
  c.require(x.size() == b->block.size() + 2, "x has shape {}, block_shape is {}", x, b->block);
  const Dim count = all_blocks(c, *b, Dims(x.begin() + 2, x.end()));
  c.out(0, c.dtype(), Dims{x[0], x[1] * b->size(), count});
}

OpSchema& windows(OpSchema& schema) {
  return schema.attr_optional("dilations")
      .attr_optional("pads")
      .attr_optional("strides")
      .differentiable_inputs({0})
      .computes_in(DType::f32);
}

}  // namespace

static void register_blocks(OpSet& ops) {
  windows(ops.op("Col2Im")
              .in("input", kNumeric)
              .in("image_shape", kInt64, "S")
              .host()
              .in("block_shape", kInt64, "S")
              .host()
              .out("output")
              .since(18))
      .shape(infer_col2im)
      .gradient([](const Backward& b) {
        return b.graph().emit1("ort::Im2Col", {b.dy(), b.x(2)}, b.attrs());
      });
  // Element (c, k, l) is that of channel c that position k of block l reads, 0 in the padding.
  windows(
      ops.op("ort::Im2Col").in("x", kNumeric).in("block_shape", kInt64, "S").host().out("columns"))
      .shape(infer_im2col)
      .gradient([](const Backward& b) {
        const Dims& x = b.x().dims();
        const Value image = b.graph().sizes(Dims(x.begin() + 2, x.end()));
        return b.graph().emit1("Col2Im", {b.dy(), image, b.x(1)}, b.attrs());
      });
}

const Family<OpSet> kBlocksOps("ops", "blocks", register_blocks);

}  // namespace ort
