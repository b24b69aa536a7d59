// Draws of Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
#include <array>

#include "csrc/core/random_key.h"
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

// Word i % 4 of the block at (i / 4, stream), as a number in [0, 1), for each i in turn.
class Draws {
 public:
  Draws(uint64_t key, uint32_t stream) : key_(key), stream_(stream) {}
  double operator()(int64_t i) {
    const uint64_t block = static_cast<uint64_t>(i) / 4;
    if (i % 4 == 0)
      words_ =
          philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), stream_, 0},
                 static_cast<uint32_t>(key_), static_cast<uint32_t>(key_ >> 32));
    return (words_[static_cast<size_t>(i % 4)] >> 8) * 0x1p-24;
  }

 private:
  uint64_t key_;
  uint32_t stream_;
  Words words_{};
};

Draws draws_of(const KernelCall& c, size_t key) {
  c.require(element_count(c.sizes(key)) == 1, "key has shape {}, expected one element",
            c.sizes(key));
  return {c.in<uint64_t>(key)[0], static_cast<uint32_t>(c.attrs().i("counter"))};
}

// Element i is kept when its number is at least the ratio.
void dropout(const KernelCall& c) {
  c.expect(0, c.sizes());
  Draws draws = draws_of(c, 1);
  const double ratio = c.attrs().f("ratio");
  const In<double> x = c.in<double>(0);
  const Out<double> y = c.out<double>(0);
  for (int64_t i = 0; i < element_count(c.sizes()); ++i)
    y.set(i, draws(i) >= ratio ? x[i] / (1.0 - ratio) : 0.0);
}

void uniform(const KernelCall& c) {
  Draws draws = draws_of(c, 0);
  for (int64_t i = 0; i < element_count(c.out_sizes()); ++i) c.out<double>(0).set(i, draws(i));
}

void random_key(const KernelCall& c) {
  *static_cast<uint64_t*>(c.out_data()) = next_random_key();
}

}  // namespace

static void register_random(KernelTable& table) {
  add(table, "ort::Dropout", kNumbers, dropout);
  add(table, "ort::Uniform", kAny, uniform);
  add(table, "ort::RandomKey", kAny, random_key);
}

const Family<KernelTable> kRandomKernels("reference", "random", register_random);

}  // namespace ort::reference
