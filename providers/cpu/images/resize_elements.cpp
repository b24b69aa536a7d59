// Resize where each element is one of x.
#include <algorithm>
#include <cstring>

#include "csrc/core/parallel.h"
#include "providers/cpu/images/resize_problem.h"

namespace ort::cpu {
namespace {

// Rows of the last axis that is resized; what lies within it moves together.
struct Rows {
  std::vector<int64_t> places;  // of each row of a plane, among those of x's plane
  std::vector<int64_t> along;   // of each element of a row
  int64_t from, to;             // bytes of a plane
  int64_t row_from, row_to;     // bytes of a row
  size_t width;                 // bytes of an element with what lies within it
};

Rows rows_of(const ResizeProblem& problem, size_t width) {
  const Sizes &from = problem.operands.from, &to = problem.operands.to;
  const size_t last = problem.maps.back().axis, lead = problem.lead();
  Rows rows{{0}, problem.maps.back().first, 0, 0, 0, 0, 0};
  for (size_t axis = lead; axis < last; ++axis) {
    std::vector<int64_t> places;
    const auto map = std::find_if(problem.maps.begin(), problem.maps.end(),
                                  [&](const AxisMap& m) { return m.axis == axis; });
    for (const int64_t before : rows.places)
      for (int64_t o = 0; o < to[axis]; ++o) {
        const int64_t at = map == problem.maps.end() ? o : map->first[static_cast<size_t>(o)];
        places.push_back(before * from[axis] + at);
      }
    rows.places = std::move(places);
  }
  rows.width = width * static_cast<size_t>(ResizeProblem::product_of(from, last + 1, from.size()));
  const auto bytes = static_cast<int64_t>(rows.width);
  rows.row_from = from[last] * bytes;
  rows.row_to = to[last] * bytes;
  rows.from = problem.plane_from() * static_cast<int64_t>(width);
  rows.to = problem.plane_to() * static_cast<int64_t>(width);
  return rows;
}

template <size_t kWidth>
void copy_row(const Rows& rows, const char* x, char* y) {
  const size_t width = kWidth > 0 ? kWidth : rows.width;
  for (const int64_t at : rows.along) {
    std::memcpy(y, x + at * static_cast<int64_t>(width), width);
    y += width;
  }
}

using CopyRow = void (*)(const Rows&, const char*, char*);

CopyRow copy_of(size_t width) {
  switch (width) {
    case 1:
      return copy_row<1>;
    case 2:
      return copy_row<2>;
    case 4:
      return copy_row<4>;
    case 8:
      return copy_row<8>;
    case 16:
      return copy_row<16>;
    case 32:
      return copy_row<32>;
    case 64:
      return copy_row<64>;
    default:
      return copy_row<0>;
  }
}

}  // namespace

std::unique_ptr<Kernel> resize_elements(const Request& r) {
  const ResizeProblem problem(r, r.in(0), r.out(), false);
  const auto all = static_cast<size_t>(element_count(r.out().sizes)) * size_of(r.in(0).dtype);
  const auto made = [&](auto run) {
    return make_kernel("Resize", run, {problem.operands.in}, {problem.operands.out});
  };
  if (problem.maps.empty())
    return made([all](const Args& args) { std::memcpy(args.out[0], args.in[0], all); });
  const Rows rows = rows_of(problem, size_of(r.in(0).dtype));
  const CopyRow copy = copy_of(rows.width);
  const int64_t planes = problem.outer(), count = static_cast<int64_t>(rows.places.size());
  return made([=](const Args& args) {
    parallel_for(
        planes * count, static_cast<int64_t>(all) / 16, [&](int64_t begin, int64_t end, int) {
          for (int64_t row = begin; row < end; ++row) {
            const int64_t plane = row / count, at = row % count;
            const int64_t place = rows.places[static_cast<size_t>(at)];
            char* y = output<char>(args) + row * rows.row_to;
            if (row > begin && at > 0 && place == rows.places[static_cast<size_t>(at) - 1])
              std::memcpy(y, y - rows.row_to, static_cast<size_t>(rows.row_to));
            else
              copy(rows, input<char>(args, 0) + plane * rows.from + place * rows.row_from, y);
          }
        });
  });
}

}  // namespace ort::cpu
