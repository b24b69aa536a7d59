// Instructions at both ends of a program that become one pass over bytes: an element is read and
// written once then, as onnxruntime quantises and dequantises.
#pragma once

#include <map>
#include <vector>

#include "providers/tile/program.h"

namespace ort::cpu {

// A division by one number, rounding, a sum with one, bounds, a store. Slots; -1: there is no such
// instruction.
struct ByteStore {
  int from = -1, divisor = -1, zero = -1, low = -1, high = -1;
  std::vector<size_t> joined;  // the instructions that it does besides, in order
};

// By the number of the store, in a program of floats.
std::map<size_t, ByteStore> byte_stores(const tile::TileProgram& program);

// A load, a difference with one number and a product with one.
struct ByteLoad {
  int from = -1, zero = -1, scale = -1;
  std::vector<size_t> joined;
};

// By the number of the product, in a program of floats.
std::map<size_t, ByteLoad> byte_loads(const tile::TileProgram& program);

}  // namespace ort::cpu
