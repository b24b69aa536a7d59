// The interpreter of tile programs: instructions run over tiles that stay in the first cache
// (vectorised interpretation, as in MonetDB/X100). Families use single instructions as functions.
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "providers/kernel.h"
#include "providers/tile/program.h"

namespace ort::cpu {

// Columns are summed over so many rows, then so many of these sums, then what they give: the
// rounding error of a sum grows with each count, not with their product.
constexpr int64_t kSummedRows = 16;
constexpr size_t kSumLevels = 4;

using TileOp = tile::Op;

// What an instruction's function sees. Operands marked in `variant` are one element.
template <class T>
struct TileArgsOf {
  T* dst;
  const T *a, *b, *c;
  int64_t count;
  T p;
  uint64_t key;
  uint32_t counter;
  uint64_t index;  // flat index of the first element
  int variant;     // as in Instruction: loops read it, vector code was chosen by it
};
template <class T>
using TileFunctionOf = void (*)(const TileArgsOf<T>&);
using TileArgs = TileArgsOf<float>;
using TileFunction = TileFunctionOf<float>;

// In vectors, or by a loop over the instruction's meaning where there is no vector code.
template <class T = float>
TileFunctionOf<T> tile_function(TileOp op, int variant);
TileFunction vector_function(TileOp op, int variant);  // null: there is none
// The elements of programs besides float32, whose vectors are written by hand, and bool.
#define ORT_TILE_TYPED(X) \
  X(double)               \
  X(int8_t) X(int16_t) X(int32_t) X(int64_t) X(uint8_t) X(uint16_t) X(uint32_t) X(uint64_t)
// A loop that the compiler made vectors of; null: there is none of this instruction.
template <class T>
TileFunctionOf<T> typed_function(TileOp op);
// By a loop over the instruction's meaning; null for load and store, and for what has none in T.
template <class T>
TileFunctionOf<T> loop_function(TileOp op);

// One instruction as a function over runs of numbers.
template <class T>
class TileStep {
 public:
  TileStep(TileOp op, int variant) : function_(tile_function<T>(op, variant)), variant_(variant) {}
  void operator()(T* dst, const T* a, const T* b, const T* c, int64_t count) const {
    TileArgsOf<T> args{};
    args.dst = dst;
    args.a = a;
    args.b = b;
    args.c = c;
    args.count = count;
    args.p = T{1};
    args.variant = variant_;
    function_(args);
  }

 private:
  TileFunctionOf<T> function_;
  int variant_;
};

std::unique_ptr<Kernel> make_tile_kernel(std::shared_ptr<const tile::TileProgram> program,
                                         tile::Extent extent, std::string name,
                                         tile::OperandLayouts layouts = {});

}  // namespace ort::cpu
