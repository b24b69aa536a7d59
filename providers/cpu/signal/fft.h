// The complex Fourier transform of any length, of several signals side by side: Stockham's passes
// by 2, 3, 4, 5 and other small factors, and Bluestein's chirp where a factor is large.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace ort::cpu {

// One pass: of `radix` parts of size `rest` each, `stride` numbers lie together.
template <class T>
struct FftPass {
  int radix;
  int64_t rest, stride;             // stride without the lanes
  std::vector<T> turn_re, turn_im;  // [radix - 1, rest]: exp(-2 pi i p k / (radix rest))
  std::vector<T> root_re, root_im;  // [radix]: of the radix itself
};

template <class T>
class Fft {
 public:
  explicit Fft(int64_t length);
  int64_t length() const { return length_; }
  // Numbers of memory that `run` needs beside the signals.
  int64_t spare(int64_t lanes) const;
  // re and im [length, lanes] become their transform.
  void run(T* re, T* im, T* spare, int64_t lanes) const;
  // Vector additions of one signal.
  int64_t work() const;

 private:
  void chirp(T* re, T* im, T* spare, int64_t lanes) const;

  int64_t length_;
  std::vector<FftPass<T>> passes_;
  // Bluestein: a convolution with a chirp, by transforms of a power of two.
  std::unique_ptr<Fft<T>> inner_;
  std::vector<T> chirp_re_, chirp_im_, filter_re_, filter_im_;
};

// Numbers side by side as pairs of real and imaginary parts, and back.
template <class T>
void split_pairs(const T* pairs, int64_t count, T* re, T* im);
template <class T>
void join_pairs(const T* re, const T* im, int64_t count, T by_re, T by_im, T* pairs);

}  // namespace ort::cpu
