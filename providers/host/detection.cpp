// Non-maximum suppression: the best box is kept, those that overlap it are dropped, and so on.
#include <algorithm>
#include <array>
#include <numeric>

#include "csrc/core/parallel.h"
#include "providers/host_kernel.h"
#include "providers/kernel_table.h"

namespace ort {
namespace {

struct Box {
  float top, left, bottom, right, area;
};

// Two opposite corners in any order, or the center with width and height.
Box box_of(const float* at, bool center) {
  Box box{};
  if (center)
    box = {at[1] - at[3] / 2, at[0] - at[2] / 2, at[1] + at[3] / 2, at[0] + at[2] / 2, 0};
  else
    box = {std::min(at[0], at[2]), std::min(at[1], at[3]), std::max(at[0], at[2]),
           std::max(at[1], at[3]), 0};
  box.area = (box.bottom - box.top) * (box.right - box.left);
  return box;
}

// Intersection over union is above the threshold; boxes of no area overlap nothing.
bool overlap(const Box& a, const Box& b, float threshold) {
  const float height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  const float width = std::min(a.right, b.right) - std::max(a.left, b.left);
  if (!(height > 0) || !(width > 0) || !(a.area > 0) || !(b.area > 0)) return false;
  const float common = height * width;
  return common / (a.area + b.area - common) > threshold;
}

struct Limits {
  size_t most;
  float overlap;
  std::optional<float> score;
};

std::vector<int64_t> kept(const std::vector<Box>& boxes, const float* scores,
                          const Limits& limits) {
  std::vector<int64_t> order;
  for (size_t i = 0; i < boxes.size(); ++i)
    if (!limits.score || scores[i] > *limits.score) order.push_back(static_cast<int64_t>(i));
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return scores[a] > scores[b]; });
  std::vector<int64_t> result;
  for (const int64_t i : order) {
    if (result.size() == limits.most) break;
    const auto hides = [&](int64_t better) {
      return overlap(boxes[static_cast<size_t>(better)], boxes[static_cast<size_t>(i)],
                     limits.overlap);
    };
    if (std::none_of(result.begin(), result.end(), hides)) result.push_back(i);
  }
  return result;
}

Limits limits_of(const HostCall& c) {
  const auto number = [&](size_t i) {
    c.require(c.tensor(i).count() == 1, "input {} has shape {}, expected one number", i,
              c.tensor(i).sizes);
    return *c.tensor(i).as<float>();
  };
  Limits limits{0, 0, {}};
  if (c.has(2)) limits.most = static_cast<size_t>(std::max<int64_t>(c.number(2), 0));
  if (c.has(3)) limits.overlap = number(3);
  if (c.has(4)) limits.score = number(4);
  c.require(limits.overlap >= 0 && limits.overlap <= 1, "iou_threshold is {}, expected 0 to 1",
            limits.overlap);
  return limits;
}

std::vector<Item> suppress(const HostCall& c) {
  const Tensor &boxes = c.tensor(0), &scores = c.tensor(1);
  const bool shaped = boxes.sizes.size() == 3 && scores.sizes.size() == 3 && boxes.sizes[2] == 4 &&
                      boxes.sizes[0] == scores.sizes[0] && boxes.sizes[1] == scores.sizes[2];
  c.require(shaped,
            "boxes have shape {}, scores {}, expected [batch, N, 4] and [batch, classes, N]",
            boxes.sizes, scores.sizes);
  const bool center = c.attrs().i("center_point_box") != 0;
  const Limits limits = limits_of(c);
  const auto batches = static_cast<size_t>(scores.sizes[0]),
             classes = static_cast<size_t>(scores.sizes[1]),
             n = static_cast<size_t>(scores.sizes[2]);
  std::vector<std::vector<Box>> by_batch(batches);
  for (size_t b = 0; b < batches; ++b)
    for (size_t i = 0; i < n; ++i)
      by_batch[b].push_back(box_of(boxes.as<float>() + (b * n + i) * 4, center));
  std::vector<std::vector<int64_t>> found(batches * classes);
  const auto all = static_cast<int64_t>(found.size());
  parallel_for(all, scores.count() * 8, [&](int64_t first, int64_t last, int) {
    for (auto k = static_cast<size_t>(first); k < static_cast<size_t>(last); ++k)
      found[k] = kept(by_batch[k / classes], scores.as<float>() + k * n, limits);
  });
  size_t count = 0;
  for (const auto& each : found) count += each.size();
  Tensor result = Tensor::empty(DType::i64, {static_cast<int64_t>(count), 3});
  int64_t* at = result.as<int64_t>();
  for (size_t k = 0; k < found.size(); ++k)
    for (const int64_t i : found[k])
      at = std::ranges::copy(
               std::array{static_cast<int64_t>(k / classes), static_cast<int64_t>(k % classes), i},
               at)
               .out;
  return {result};
}

}  // namespace

static void register_host_detection(HostTable& table) {
  table["NonMaxSuppression"] = {bit(DType::f32), suppress};
}

const Family<HostTable> kDetectionKernels("host", "detection", register_host_detection);

}  // namespace ort
