// Instructions that end in a store of bytes and are done as one: an element is read and written
// once then, as onnxruntime quantises.
#pragma once

#include <map>
#include <vector>

#include "providers/tile/program.h"

namespace ort::cpu {

// A division by one number, rounding, a sum with one, bounds. Slots; -1: there is no such
// instruction.
struct ByteStore {
  int from = -1, divisor = -1, zero = -1, low = -1, high = -1;
  std::vector<size_t> joined;  // the instructions that it does besides, in order
};

// By the number of the store, in a program of floats.
std::map<size_t, ByteStore> byte_stores(const tile::TileProgram& program);

}  // namespace ort::cpu
