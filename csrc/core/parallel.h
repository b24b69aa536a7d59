// Threads of a kernel: OpenMP, whose runtime is the one torch uses, so there is one pool.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <exception>

namespace ort {

// Below about this many vector element operations, waking a thread costs more than it saves.
constexpr int64_t kGrain = 128 << 10;

inline int threads_for(int64_t work, int64_t units) {
  const int64_t useful = std::min<int64_t>(work / kGrain, units);
  if (useful <= 1 || omp_in_parallel()) return 1;
  return static_cast<int>(std::min<int64_t>(useful, omp_get_max_threads()));
}

// The part of [0, units) that thread `index` of `threads` works on: fixed, so sums repeat exactly.
struct Share {
  int64_t begin, end;
  Share(int64_t units, int index, int threads)
      : begin(units * index / threads), end(units * (index + 1) / threads) {}
};

// Calls f(begin, end, thread) on a static split of [0, units). `work` is the total number of
// element operations, `most` the threads that there is scratch memory for. An exception of any
// thread is thrown again in the caller.
template <class F>
void parallel_for(int64_t units, int64_t work, F&& f, int most = 1 << 16) {
  if (units <= 0) return;
  const int threads = std::min(threads_for(work, units), most);
  if (threads == 1) {
    f(int64_t{0}, units, 0);
    return;
  }
  std::exception_ptr error;
#pragma omp parallel num_threads(threads)
  {
    const Share share(units, omp_get_thread_num(), omp_get_num_threads());
    try {
      if (share.begin < share.end) f(share.begin, share.end, omp_get_thread_num());
    } catch (...) {
#pragma omp critical(ort_parallel_error)
      error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace ort
