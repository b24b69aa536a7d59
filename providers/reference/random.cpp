// Dropout from Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
#include <array>

#include "providers/reference/reference.h"

namespace ort::reference {
namespace {

using Words = std::array<uint32_t, 4>;

Words philox(Words counter, uint32_t key_low, uint32_t key_high) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0], b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key_low, static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key_high, static_cast<uint32_t>(a)};
    key_low += 0x9E3779B9;
    key_high += 0xBB67AE85;
  }
  return counter;
}

// Element i is kept when word i % 4 of the block at (i / 4, counter), as u in [0, 1), is >= ratio.
void dropout(const KernelCall& c) {
  c.expect(0, c.sizes());
  c.require(element_count(c.sizes(1)) == 1, "key has shape {}, expected one element", c.sizes(1));
  const uint64_t key = c.in<uint64_t>(1)[0];
  const uint32_t stream = static_cast<uint32_t>(c.attrs().i("counter"));
  const double ratio = c.attrs().f("ratio");
  const In<double> x = c.in<double>(0);
  const Out<double> y = c.out<double>(0);
  Words words{};
  for (int64_t i = 0; i < element_count(c.sizes()); ++i) {
    const uint64_t block = static_cast<uint64_t>(i) / 4;
    if (i % 4 == 0)
      words = philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), stream, 0},
                     static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32));
    const double u = (words[static_cast<size_t>(i % 4)] >> 8) * 0x1p-24;
    y.set(i, u >= ratio ? x[i] / (1.0 - ratio) : 0.0);
  }
}

}  // namespace

static void register_random(KernelTable& table) {
  add(table, "ort::Dropout", kNumbers, dropout);
}

const Family<KernelTable> kFamily("reference", "random", register_random);

}  // namespace ort::reference
